# SPDX-License-Identifier: Apache-2.0
"""Whatever stands in a lock directory: Zuul, older launchers and people write there, too (reference/zookeeper 3).

Who has a lock is the same for us as for Kazoo, and nothing there ends a pass of a worker or a handler of events.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from kazoo.exceptions import NoNodeError
from kazoo.recipe.lock import Lock

from nodepool.driver.metastatic.backing import BackingView
from nodepool.model.node import Node
from nodepool.zk import paths
from nodepool.zk.cache import LockedRecordCache
from nodepool.zk.locks import ZkLock
from nodepool.zk.nodes import NodeStore
from nodepool.zk.reply import CHANGED, CREATED, DELETED, Reply
from nodepool.zk.wire.watched_client import Operations

NODE_ID = "0000000001"
LOCK_DIR = paths.node_lock(NODE_ID)
OWNER = "NodePool:metastatic:lab"

#: Sequence numbers are signed, and begin anew at the smallest one.
_SEQUENCES = st.integers(0, 20).map(lambda number: f"{number:010d}") | st.sampled_from(
    ("2147483647", "-2147483648", "-000000001", "123456789", "00000000001", "\u0660" * 10, "")
)
_MARKS = st.sampled_from(
    ("__lock__", "__lock__", "__lock__", "__rlock__", "-lock-", "__lease__", "__LOCK__", "__lock__x")
)
_PREFIXES = st.text("0123456789abcdef", min_size=32, max_size=32) | st.sampled_from(
    ("", "a", "\u00e9", "__lock__0000000000")
)
#: ZooKeeper takes no control characters and no surrogates.
_JUNK = st.text(
    st.characters(blacklist_categories=("Cc", "Cs", "Co"), blacklist_characters="/"), min_size=1, max_size=12
)

names = st.builds("".join, st.tuples(_PREFIXES, _MARKS, _SEQUENCES)).filter(bool) | _JUNK
data = st.binary(max_size=20) | st.sampled_from(
    (OWNER.encode(), b"", b"\xff\xfe", b"\x00" * 9, OWNER.encode() + b"\n", "\u2028".encode(), b"{" * 400, b"x" * 3000)
)
directories = st.dictionaries(names.filter(lambda name: name not in (".", "..")), data, max_size=6)


class Kazoo:
    """One lock directory; its first ``vanished`` contenders are gone when they are read."""

    chroot = ""
    operations = Operations("")

    def __init__(self, directory: dict[str, bytes], vanished: int = 0) -> None:
        self.directory = directory
        self._vanished = vanished
        self.deleted: list[str] = []

    def retry(self, function: Any, *arguments: Any) -> Any:
        return function(*arguments)

    def get_children(self, path: str) -> list[str]:
        assert path == LOCK_DIR
        return list(self.directory)

    def get(self, path: str) -> tuple[bytes, None]:
        if self._vanished:
            self._vanished -= 1
            raise NoNodeError
        return self.directory[path.removeprefix(f"{LOCK_DIR}/")], None

    def delete(self, path: str) -> None:
        self.deleted.append(path)

    def call(self, request: Any, reply: Reply) -> Reply:
        return reply

    def watch_recursive(self, *_: Any) -> None:
        return


def kazoo_order(kazoo: Kazoo) -> list[str]:
    """Identifiers as Kazoo's recipe has them."""
    lock = object.__new__(Lock)
    lock.client, lock.path, lock.assured_path = kazoo, LOCK_DIR, True
    lock._exclude_names = set(Lock._EXCLUDE_NAMES)
    found: list[str] = lock.contenders()
    return found


def client_of(kazoo: Kazoo) -> Any:
    return SimpleNamespace(kazoo=kazoo, connected=True, add_session_listener=lambda listener: None, session_epoch=0)


@settings(deadline=None, max_examples=50)
@example({f"{'a' * 32}__lock__x": b"nobody", f"{'b' * 32}__lock__0000000002": b"us"}, 0)
@example({f"{'a' * 32}__lock__-000000001": b"late", f"{'b' * 32}__lock__2147483647": b"early"}, 0)
@given(directories, st.integers(0, 2))
def test_who_has_the_lock(directory: dict[str, bytes], vanished: int) -> None:
    """The same contenders in the same order as for Kazoo, whatever they say of themselves."""
    store = NodeStore(client_of(Kazoo(directory, vanished)), None)
    identifiers = store.contenders(NODE_ID)
    assert all(isinstance(identifier, str) for identifier in identifiers)
    if vanished:
        return
    text = {name: value for name, value in directory.items() if is_utf8(value)}
    if text == directory:
        assert identifiers == kazoo_order(Kazoo(directory))
    kazoo = Kazoo(directory)
    node = Node("small", NODE_ID)
    node.lock = ZkLock(LOCK_DIR, "", 0)
    holder = NodeStore(client_of(kazoo), None).lock_holder(NODE_ID)
    NodeStore(client_of(kazoo), None).force_unlock(node)
    assert kazoo.deleted == ([] if holder is None else [holder[0]])


def is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


@settings(deadline=None, max_examples=50)
@example({f"{'a' * 32}__lock__0000000000zzzz": b"", f"{'b' * 32}__lock__0000000002": OWNER.encode()}, ["x"])
@given(directories, st.lists(names | st.builds("/".join, st.tuples(names, names)), max_size=4))
def test_a_cache_hears_of_it(directory: dict[str, bytes], events: list[str]) -> None:
    """It is locked as long as anything is there, and the cache and ZooKeeper name the same holder."""
    numbers = [number for name in directory if (number := paths.contender_sequence(name)) is not None]
    # ZooKeeper numbers what is made in a directory: no two contenders have the same number.
    assume(len(set(numbers)) == len(numbers))
    client = client_of(Kazoo(directory))
    cache = LockedRecordCache(client, paths.NODES, Node.from_dict)
    cache._on_contenders(cache._generation, [(NODE_ID, list(directory))])
    for name in events:
        for event in (CREATED, CHANGED, DELETED):
            if name not in directory:
                cache._on_event(event, f"{LOCK_DIR}/{name}")
    assert cache.is_locked(NODE_ID) == bool(directory)
    assert (NODE_ID in cache.locked_ids()) == bool(directory)
    found = cache.contenders(NODE_ID)
    assert set(found) == set(directory)
    holder = NodeStore(client, None).lock_holder(NODE_ID)
    if holder is not None:
        assert found[0] == holder[0].removeprefix(f"{LOCK_DIR}/")
    view = view_of(client, cache)
    assert view._our_contender(NODE_ID) == (holder[0] if holder is not None and holder[1] == OWNER else None)


def view_of(client: Any, cache: Any) -> BackingView:
    """As much of it as knows locks."""
    view = object.__new__(BackingView)
    view._nodes, view._owner, view._ours = cache, OWNER, {}
    view._zk = cast(Any, SimpleNamespace(nodes=NodeStore(client, None)))
    return view
