# SPDX-License-Identifier: Apache-2.0
"""nodepool.zk.image_cache, with a server whose events and answers come in any order that ZooKeeper allows.

An event may overtake the answer to an older read; an answer never overtakes the event of a change that it shows.
"""

from __future__ import annotations

import json
import random
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kazoo.exceptions import NoNodeError
from kazoo.protocol.serialization import GetData

from nodepool.exceptions import ZKConnectionError
from nodepool.model.image_view import ImagesView
from nodepool.zk import image_paths, paths
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.events import CHANGED, CREATED, DELETED
from nodepool.zk.image_cache import ImageCache
from nodepool.zk.reply import Reply
from nodepool.zk.wire.operations import MultiRead, Operations

LOCK = f"{image_paths.build_lock('debian')}/a{paths.CONTENDER_MARK}0000000001"
BUILD = image_paths.build("debian", "b1")


class Server:
    """Has znodes, notes events for one client, and answers when the test says so."""

    connected = True

    def __init__(self) -> None:
        self.znodes: dict[str, tuple[bytes, Any]] = {}
        self.asked: deque[tuple[MultiRead, Reply]] = deque()
        #: (number of the event, what it says), and (number of events before it, answer).
        self.events: deque[tuple[int, str]] = deque()
        self.answers: deque[tuple[int, Reply, list[Any]]] = deque()
        self.counted = self.delivered = 0
        self.version = 0
        self.kazoo = SimpleNamespace(operations=Operations(""), call=self._call, watch_recursive=self._watch)
        self.tell: Callable[[int, str], None] | None = None

    # -- what the cache calls --

    def add_session_listener(self, listener: Callable[[str], None]) -> None:
        self.tell_session = listener

    def _watch(self, path: str, function: Callable[[int, str], None], on_done: Any) -> None:
        assert path == image_paths.IMAGES
        self.tell = function

    def _call(self, request: Any, reply: Reply) -> None:
        assert isinstance(request, MultiRead)
        self.asked.append((request, reply))

    # -- what others do --

    def put(self, path: str, **fields: Any) -> None:
        """Create or overwrite, with all that is above."""
        parent = path.rpartition("/")[0]
        if parent.startswith(image_paths.IMAGES) and parent not in self.znodes:
            self.put(parent)
        self.version += 1
        kind = CHANGED if path in self.znodes else CREATED
        stat = SimpleNamespace(version=self.version, mzxid=self.version, czxid=1, ctime=1000, mtime=2000)
        self.znodes[path] = (json.dumps(fields).encode() if fields else b"", stat)
        self._note(kind, path)

    def delete(self, path: str) -> None:
        for doomed in sorted((name for name in self.znodes if f"{name}/".startswith(f"{path}/")), reverse=True):
            del self.znodes[doomed]
            self._note(DELETED, doomed)

    def _note(self, kind: int, path: str) -> None:
        self.counted += 1
        self.events.append((kind, path))

    # -- what travels --

    def serve(self) -> bool:
        """Answer the oldest question; the answer is under way then."""
        if not self.asked:
            return False
        request, reply = self.asked.popleft()
        self.answers.append((self.counted, reply, [self._read(operation) for operation in request.operations]))
        return True

    def _read(self, operation: Any) -> Any:
        if operation.path not in self.znodes:
            return NoNodeError()
        if isinstance(operation, GetData):
            return self.znodes[operation.path]
        depth = operation.path.count("/") + 1
        names = [name for name in self.znodes if name.startswith(f"{operation.path}/") and name.count("/") == depth]
        return [name.rpartition("/")[2] for name in names]

    def deliver_event(self) -> bool:
        if not self.events:
            return False
        self.delivered += 1
        event = self.events.popleft()
        if self.tell is not None:
            self.tell(*event)
        return True

    def deliver_answer(self) -> bool:
        if not self.answers or self.answers[0][0] > self.delivered:
            return False
        _, reply, found = self.answers.popleft()
        reply.set(found)
        return True

    def lose_connection(self) -> None:
        """Nothing that is under way arrives; then it is there again."""
        self.tell = None
        self.events.clear()
        self.delivered = self.counted
        lost = [reply for _, reply in self.asked] + [reply for _, reply, _ in self.answers]
        self.asked.clear()
        self.answers.clear()
        self.tell_session("suspended")
        for reply in lost:
            reply.set_exception(ZKConnectionError("lost"))
        self.tell_session("connected")

    def settle(self) -> None:
        while self.serve() or self.deliver_event() or self.deliver_answer():
            pass


@pytest.fixture
def server() -> Server:
    return Server()


def cache_of(server: Server) -> ImageCache:
    return ImageCache(cast(ZooKeeperClient, server))


def plain(view: ImagesView) -> dict[str, Any]:
    """What a view shows, to be compared."""
    return {
        name: (
            *(image.paused, image.build_requested, image.build_locked),
            {
                build.id: (
                    *(build.state, build.locked, sorted(build.uploading)),
                    {
                        provider: [(u.id, u.record and (u.record.state, u.record.version), u.locked) for u in uploads]
                        for provider, uploads in build.uploads.items()
                    },
                )
                for build in image.builds.values()
            },
        )
        for name, image in view.images.items()
    }


def moves(server: Server, rng: random.Random) -> None:
    """Something that builders, commands or nobody would do."""
    image, build, provider = rng.choice("xy"), rng.choice("12"), rng.choice("pq")
    state = rng.choice(["ready", "failed", "deleting"])
    places = [
        image_paths.image(image),
        image_paths.pause(image),
        image_paths.build_request(image),
        image_paths.build(image, build),
        f"{image_paths.build_lock(image)}/a{paths.CONTENDER_MARK}0000000001",
        f"{image_paths.build_id_lock(image, build)}/a{paths.CONTENDER_MARK}0000000001",
        f"{image_paths.upload_lock(image, build, provider)}/a{paths.CONTENDER_MARK}0000000001",
        image_paths.upload(image, build, provider, rng.choice(["0000000001", "0000000002"])),
        f"{image_paths.build(image, build)}/unknown/below",
    ]
    place = rng.choice(places)
    if rng.random() < 0.4:
        server.delete(place)
    else:
        server.put(place, **({"state": state, "state_time": 1.0} if rng.random() < 0.9 else {}))


@pytest.mark.parametrize("seed", range(40))
def test_in_the_end_the_view_is_what_is_there(server: Server, seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(20):
        moves(server, rng)
    cache = cache_of(server)
    server.events.clear()
    server.delivered = server.counted
    travel = [server.serve, server.deliver_event, server.deliver_answer]
    for _ in range(400):
        if rng.random() < 0.3:
            moves(server, rng)
        elif rng.random() < 0.01:
            server.lose_connection()
        else:
            rng.choice(travel)()
    server.settle()
    fresh = Server()
    fresh.znodes = server.znodes
    expected = cache_of(fresh)
    fresh.settle()
    assert cache.ready.is_set()
    assert expected.ready.is_set()
    assert cache.pending_reads == 0
    assert plain(cache.snapshot()) == plain(expected.snapshot())


@pytest.mark.parametrize("seed", range(40))
def test_free_lock_beside_a_build_that_has_ended(server: Server, seed: int) -> None:
    """Who looks never takes a build for abandoned whose holder stored its end before the lock was free."""
    rng = random.Random(seed)
    server.put(image_paths.build_lock("debian"))
    cache = cache_of(server)
    server.settle()
    seen: set[tuple[bool, str | None]] = set()

    def look(_: str) -> None:
        image = cache.snapshot().image("debian")
        build = image.builds.get("b1")
        seen.add((image.build_locked, None if build is None else build.state))

    cache.add_listener(look)
    steps: list[Callable[[], None]] = [
        lambda: server.put(LOCK),
        lambda: server.put(BUILD, state="building", state_time=1.0),
        lambda: server.put(BUILD, state="ready", state_time=2.0),
        lambda: server.delete(LOCK),
    ]
    for step in steps:
        step()
        for _ in range(rng.randrange(6)):
            rng.choice([server.serve, server.deliver_event, server.deliver_answer])()
    server.settle()
    assert (False, "building") not in seen
    assert (False, "ready") in seen


def test_connection_ends_while_something_is_asked(server: Server) -> None:
    """In the connection's thread nothing may be raised."""
    cache = cache_of(server)
    server.settle()

    def closed(*_: Any) -> None:
        raise ZKConnectionError("closing")

    server.kazoo.call = closed
    server.put(image_paths.build("debian", "b1"), state="ready")
    server.settle()
    assert cache.snapshot().image("debian").builds == {}


def test_nothing_is_known_before_everything_was_read(server: Server) -> None:
    server.put(image_paths.pause("debian"))
    cache = cache_of(server)
    server.serve()
    assert (cache.complete, cache.ready.is_set(), cache.wait_ready(0.0)) == (False, False, False)
    server.settle()
    assert (cache.complete, cache.ready.is_set()) == (True, True)
    server.tell_session("suspended")
    assert (cache.complete, cache.ready.is_set()) == (True, False)
    assert cache.snapshot().image("debian").paused
