# SPDX-License-Identifier: Apache-2.0
"""The component registry: our own entries, and those of other processes (reference/zookeeper 7).

Then the id of the installation that all of them belong to.
"""

from __future__ import annotations

import contextlib
import json
import logging
import threading
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from kazoo.exceptions import BadVersionError, KazooException, NoNodeError

from nodepool import log_names
from nodepool.exceptions import ZKException
from nodepool.late_names import late_names
from nodepool.model.record import InvalidRecord
from nodepool.model.status import Component, LauncherComponent, PoolComponent
from nodepool.zk import paths
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.transactions import read_below, read_one, records_below, replace, translate

#: Level of the data model that this release speaks.
MODEL_API = 0


class Registration:
    """Keeps one entry in the registry, also after a lost session.

    ``_lock`` guards the entry's znode. It is held during the write, because a later write of the entry must not
    overtake an earlier one. No other object takes this lock.
    """

    log = logging.getLogger(log_names.COMPONENT_REGISTRY)

    def __init__(self, client: ZooKeeperClient, component: Component) -> None:
        self._client = client
        self.component = component
        self._lock = threading.Lock()
        self._path: str | None = None
        self._epoch = -1
        self._stored: bytes | None = None
        self._create_tried = False

    def update(self, **changes: Any) -> None:
        """Change fields and store them if anything changed. Blocks for a round trip. Raises ZKException."""
        with self._lock:
            for name, value in changes.items():
                setattr(self.component, name, value)
            self._store()

    def ensure(self) -> None:
        """Register again after a lost session. Costs nothing while all is well."""
        if self._path is None or self._epoch != self._client.session_epoch:
            with self._lock:
                self._store()

    def rewrite(self) -> None:
        """Store the entry although nothing changed: it may be deleted. Blocks for a round trip. Raises ZKException."""
        with self._lock:
            self._stored = None
            self._store()

    def _store(self) -> None:
        kazoo = self._client.kazoo
        data = json.dumps(self.component.to_dict(), sort_keys=True).encode()
        if self._path is not None and self._epoch == self._client.session_epoch:
            if data == self._stored:
                return
            try:
                kazoo.retry(kazoo.set, self._path, data)
                self._stored = data
                return
            except (NoNodeError, BadVersionError):
                self.log.warning("Registry entry %s was removed, registering again", self._path)
            except KazooException as error:
                raise translate(error) from None
        root = f"{paths.COMPONENTS}/{self.component.kind}"
        self._epoch = epoch = self._client.session_epoch
        # From here on there is none, whatever goes wrong: what was made before may be among those that are removed.
        self._path = None
        try:
            self._remove_orphans(root)
            self._create_tried = True
            self._path = kazoo.create(
                f"{root}/{self.component.hostname}", data, makepath=True, ephemeral=True, sequence=True
            )
        except KazooException as error:
            raise translate(error) from None
        # With a session lost in between no one knows whose it is: if it is the new one's, it is looked for next time.
        self._create_tried = self._client.session_epoch != epoch
        self._stored = data

    def _remove_orphans(self, root: str) -> None:
        """After a creation whose answer was lost: the entry may be there, and no one would ever remove it.

        A pool that is registered but serves no one keeps requests from failing.
        """
        if not self._create_tried:
            return
        kazoo = self._client.kazoo
        # Another server of the ensemble may not know it yet.
        kazoo.retry(kazoo.sync, root)
        session_id = (kazoo.client_id or (None,))[0]
        for name, data, stat in read_below(self._client, root):
            # A launcher has one entry of a kind without ids; pools are distinguished by theirs.
            if stat.ephemeralOwner == session_id and entry_id(data) == getattr(self.component, "id", None):
                # It may go by itself just now, with its session.
                with contextlib.suppress(NoNodeError):
                    kazoo.delete(f"{root}/{name}")

    def unregister(self) -> None:
        """Remove the entry; one that is not there is fine. Raises ZKException: try again, it may still be there."""
        with self._lock:
            try:
                self._remove_orphans(f"{paths.COMPONENTS}/{self.component.kind}")
                self._create_tried = False
                if self._path is not None:
                    self._client.kazoo.delete(self._path)
            except NoNodeError:
                self.log.debug("Registry entry %s did not exist any more", self._path)
            except KazooException as error:
                raise translate(error) from None
            self._path = None


C = TypeVar("C")


def _read(client: ZooKeeperClient, kind: str, make: Callable[[dict[str, Any], str], C]) -> list[C]:
    """The entries of a kind, read now; bad ones are logged and skipped."""
    root = f"{paths.COMPONENTS}/{kind}"
    return records_below(client, root, lambda name, data: make(paths.decode(data), name), Registration.log)


def read_pools(client: ZooKeeperClient) -> list[PoolComponent]:
    """All registered pools. Blocks for two round trips, and until there is a connection. Raises ZKException."""
    return _read(client, PoolComponent.kind, PoolComponent.from_dict)


def read_launchers(client: ZooKeeperClient) -> list[LauncherComponent]:
    """All registered launchers by host, as `read_pools`."""
    launchers = _read(client, LauncherComponent.kind, LauncherComponent.from_dict)
    return sorted(launchers, key=lambda launcher: launcher.hostname)


def read_hosts(client: ZooKeeperClient, kind: str) -> list[str]:
    """Host names of the registered components of a kind, sorted; entries that cannot be read count by their name."""
    hosts = set()
    for name, data, _ in read_below(client, f"{paths.COMPONENTS}/{kind}"):
        try:
            hosts.add(str(paths.decode(data).get("hostname") or name))
        except InvalidRecord:
            hosts.add(name)
    return sorted(hosts)


def system_model_api(client: ZooKeeperClient) -> int | None:
    """The lowest ``model_api`` of all registered components, or None if there are none."""
    levels = [
        level
        for kind in ("launcher", "pool", "builder")
        for level in _read(client, kind, lambda data, _: data.get("model_api", 0))
        if isinstance(level, int) and not isinstance(level, bool)
    ]
    return min(levels, default=None)


def check_model_api(client: ZooKeeperClient) -> None:
    """Refuse to start beside components that all speak a newer data model. Raises ZKException."""
    level = system_model_api(client)
    if level is not None and level > MODEL_API:
        raise ZKException(f"this release speaks model API {MODEL_API}, but the running system needs at least {level}")


def entry_id(data: bytes) -> Any:
    """The id in an entry, of any type; None = there is none."""
    try:
        return paths.decode(data).get("id")
    except InvalidRecord:
        return None


# The id of an installation: all launchers, builders and commands of one ZooKeeper (reference/zookeeper).
#
# It is made once, at random, by the process that asks first. All that is made in clouds bears it. So two installations
# in one cloud project, whose providers have the same name, know their things apart (D-10).

#: Hexadecimal digits of an id: a value of labels of every cloud.
ID_DIGITS: Final = 16


class Installation(NamedTuple):
    """:param adopted: ids of earlier installations whose things are ours now, such as before a loss of ZooKeeper."""

    id: str
    adopted: tuple[str, ...] = ()

    @property
    def ids(self) -> tuple[str, ...]:
        """Its own comes first."""
        return (self.id, *self.adopted)


def is_installation_id(text: Any) -> bool:
    """Can it be the id of an installation?"""
    return isinstance(text, str) and len(text) == ID_DIGITS and set(text) <= set("0123456789abcdef")


def read_installation(client: ZooKeeperClient) -> Installation | None:
    """What is stored; None = nothing yet. Blocks for a round trip. Raises ZKException, also for what is no record."""
    found = read_one(client, paths.INSTALLATION)
    return None if found is None else _decode_installation(found[0])


def get_installation(client: ZooKeeperClient) -> Installation:
    """The same; it is made if there is none. Of several who make it at the same time one wins. Blocks."""
    return read_installation(client) or adopt(client, ())


def adopt(client: ZooKeeperClient, ids: tuple[str, ...]) -> Installation:
    """Things that bear these ids are ours from now on. Blocks. Returns what is stored then.

    The first of them becomes the id of an installation that has none yet.
    """

    def adopted(data: bytes | None) -> bytes:
        if data is None:
            return _encode_installation(Installation((*ids, uuid.uuid4().hex[:ID_DIGITS])[0], ids[1:]))
        before = _decode_installation(data)
        new = [one for one in ids if one not in before.ids]
        return _encode_installation(Installation(before.id, (*before.adopted, *new))) if new else data

    return _decode_installation(replace(client, paths.INSTALLATION, adopted))


def _encode_installation(installation: Installation) -> bytes:
    return paths.encode({"id": installation.id, "adopted": list(installation.adopted)})


def _decode_installation(data: bytes) -> Installation:
    try:
        record = paths.decode(data)
        found, adopted = record.get("id"), record.get("adopted") or []
        if is_installation_id(found) and isinstance(adopted, list) and all(map(is_installation_id, adopted)):
            return Installation(str(found), tuple(adopted))
        problem = f"it must have an id of {ID_DIGITS} hexadecimal digits"
    except InvalidRecord as error:
        problem = str(error)
    raise ZKException(f"{paths.INSTALLATION} cannot be read: {problem}")


if not TYPE_CHECKING:
    # Drivers written for 11.0.0 import these from here.
    __getattr__ = late_names(__name__, {"COMPONENT_REGISTRY": "nodepool.compat.modules"})
