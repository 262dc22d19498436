# SPDX-License-Identifier: Apache-2.0
"""All that pages and API show, as it was at one moment, and which records have changed since another moment.

Then where what is shown leads to (`Links`).
"""

from __future__ import annotations

import dataclasses
import enum
import re
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote

from nodepool.clock import monotonic, wall_time
from nodepool.guard import OnError
from nodepool.model.node import Node
from nodepool.model.status import BuilderStatus
from nodepool.plan.observed import Observed, host_name
from nodepool.zk.caches import StatusCache
from nodepool.zk.nodes import NodepoolCache

if TYPE_CHECKING:
    from nodepool.web.history import Life

#: A snapshot is used for so long, although something has changed: however many viewers there are.
LIFETIME_SECONDS: Final = 0.5
#: Of more changed records of one kind it is only known that there are some.
MOST_IDS: Final = 1000
#: In place of ids: any record of the kind may have changed.
ANY: Final = frozenset({""})


@dataclass(frozen=True)
class WebSnapshot:
    """Nothing in it is changed; what it holds is shared with the caches and must not be changed by readers.

    :param number: of this content; another content has a higher one. It counts from the start of the process.
    :param observed: nodes, requests, pools, maintenance, events; its ``now`` is when it was asked for.
    :param complete: does it show all that ZooKeeper has? Else the caches are being filled, or the connection is away.
    :param life: kind and id of a request or node, also of one that ended -> what is kept of it; None = nothing.
    """

    number: int
    observed: Observed
    builders: BuilderStatus = field(default_factory=BuilderStatus)
    complete: bool = True
    life: Callable[[str, str], Life | None] = field(default=lambda _kind, _id: None, compare=False)


class RecordKind(enum.StrEnum):
    """Of what viewers are notified."""

    NODES = "nodes"
    REQUESTS = "requests"
    #: Pools, their limits and what is held or paused.
    PROVIDERS = "providers"
    LAUNCHERS = "launchers"
    IMAGES = "images"


class SnapshotMaker:
    """Makes snapshots of caches when they are asked for. Any thread.

    :param cache: it is listened to for as long as it lives.
    :param builders: hosts of registered builders; None = not known. Must not block.
    """

    def __init__(
        self,
        cache: NodepoolCache,
        status: StatusCache,
        builders: Callable[[], frozenset[str] | None] = lambda: None,
    ) -> None:
        self._cache = cache
        self._status = status
        self._builders = builders
        #: `WebSnapshot.life` of the snapshots.
        self.life: Callable[[str, str], Life | None] = lambda _kind, _id: None
        #: Ids of records that came, changed or went since the last snapshot: written by the connection thread, taken by
        #: one other; each operation on a set is atomic.
        self._noted: dict[RecordKind, set[str]] = {kind: set() for kind in RecordKind}
        #: Has anything changed since then?
        self._dirty = True
        #: Guards what follows; held while a snapshot is made, which does no I/O.
        self._lock = threading.Lock()
        self._latest: WebSnapshot | None = None
        #: The nodes of the newest snapshot, by their ids.
        self._nodes: dict[str, Node] = {}
        self._made_at = 0.0
        #: What the snapshots since the last `take_changes` have that those before have not.
        self._shown: dict[RecordKind, frozenset[str]] = {}
        cache.nodes.add_listener(partial(self._note, RecordKind.NODES))
        cache.requests.add_listener(partial(self._note, RecordKind.REQUESTS))
        cache.pools.add_listener(partial(self._note, RecordKind.PROVIDERS))
        cache.maintenance.add_listener(partial(self._note, RecordKind.PROVIDERS, ""))
        cache.images.add_listener(partial(self._note, RecordKind.IMAGES))
        status.add_listener(self._note_status)

    @property
    def complete(self) -> bool:
        """Do the caches follow ZooKeeper, and have they read everything? Does not block."""
        return self._cache.ready and self._status.ready.is_set()

    def latest(self, lifetime: float = LIFETIME_SECONDS) -> WebSnapshot:
        """The newest snapshot, or one that was made less than ``lifetime`` seconds ago. Its ``observed.now`` is now."""
        with self._lock:
            clock, now = monotonic(), wall_time()
            old = self._latest
            if old is None or (self._dirty and clock - self._made_at >= lifetime):
                # What was noted is lost: all nodes are looked at again.
                with OnError(lambda _error: self._note(RecordKind.NODES, "")):
                    new = self._made(old, clock)
            else:
                new = old if now == old.observed.now else dataclasses.replace(old, observed=old.observed.at(now))
                if old.complete != (complete := self.complete):
                    new = dataclasses.replace(new, number=old.number + 1, complete=complete)
            self._latest = new
            return new

    def _made(self, old: WebSnapshot | None, clock: float) -> WebSnapshot:
        """What the caches have now."""
        # What changes from here on may be missing in it: it causes another one.
        self._dirty = False
        self._made_at = clock
        changed: dict[RecordKind, frozenset[str]] = {}
        for kind, noted in self._noted.items():
            ids = set()
            # One by one: what is noted meanwhile is found now or the next time.
            while noted:
                ids.add(noted.pop())
            changed[kind] = frozenset(ids)
            if ids:
                self._show(kind, changed[kind])
        new = self._make(0 if old is None else old.number + 1, changed[RecordKind.NODES])
        if old is not None:
            # Of what daemons report only that something has changed is known: it is compared.
            for kind, before, after in (
                (RecordKind.PROVIDERS, old.observed.statuses, new.observed.statuses),
                (RecordKind.LAUNCHERS, old.observed.launchers, new.observed.launchers),
                (RecordKind.IMAGES, old.builders, new.builders),
            ):
                if before != after:
                    self._show(kind, ANY)
        return new

    def refresh(self) -> None:
        """Ask for the nodes that changed while they were locked: the cache has them soon after.

        By itself it reads them after the lock is released, or once a second. Does not block.
        """
        if self.complete:
            self._cache.nodes.refresh_stale()

    def take_changes(self) -> Mapping[RecordKind, frozenset[str]]:
        """What the latest snapshot shows that was not so at the last call; `ANY` = any may have changed."""
        with self._lock:
            shown, self._shown = self._shown, {}
            return shown

    def _note(self, kind: RecordKind, record_id: str) -> None:
        noted = self._noted[kind]
        noted.add(record_id if len(noted) < MOST_IDS else "")
        self._dirty = True

    def _note_status(self) -> None:
        self._dirty = True

    def _show(self, kind: RecordKind, ids: frozenset[str]) -> None:
        known = self._shown.get(kind, frozenset()) | ids
        # Without viewers they are not taken, for weeks.
        self._shown[kind] = ANY if known & ANY or len(known) > MOST_IDS else known

    def _nodes_with(self, changed: frozenset[str]) -> dict[str, Node]:
        """The nodes by their ids, as nearly all lists show them. Of thousands only those that changed are looked at."""
        cache, before = self._cache.nodes, self._nodes
        last = next(reversed(before), "")
        if changed & ANY or any(key < last and key not in before for key in changed):
            found = cache.snapshot()
            return {key: found[key] for key in sorted(found)}
        nodes = before.copy()
        for key in sorted(changed):
            if (node := cache.get(key)) is None:
                nodes.pop(key, None)
            else:
                nodes[key] = node
        return nodes

    def _make(self, number: int, changed: frozenset[str]) -> WebSnapshot:
        """:param changed: ids of the nodes that may be others than in the latest snapshot."""
        cache = self._cache
        self._nodes = self._nodes_with(ANY if self._latest is None else changed)
        launchers, images = tuple(self._status.launchers()), cache.images.snapshot()
        builders = self._status.builders()
        observed = Observed(
            now=wall_time(),
            requests=cache.requests.snapshot(),
            nodes=self._nodes,
            registered=cache.pools.values(),
            statuses=tuple(self._status.pools()),
            maintenance=(*cache.maintenance.snapshot().values(), *images.pauses()),
            events=[event for launcher in launchers for event in launcher.events],
            launchers=launchers,
            locked=cache.nodes.locked_ids(),
            images=images,
            builders=self._builders(),
            builder_providers=builders.providers,
            lacking_files=builders.lacking_files,
        )
        if self._latest is not None and not changed & ANY:
            observed.follow(self._latest.observed, changed)
        return WebSnapshot(number, observed, builders, self.complete, self.life)


# `Links`: where values of a snapshot lead to. What is neither there nor kept has no page, and no link.

#: Where a value leads to, from the root of the site, or a whole address; None = nowhere.
Link = Callable[[Any], str | None]


class CellText(NamedTuple):
    """A text in a cell.

    :param href: where it leads to: from the root of the site, or a whole address of another one; None = nowhere.
    :param title: what more is known of it, for who points at it. ``command``: it is one, for a shell.
    """

    text: str
    href: str | None = None
    title: str = ""
    command: bool = False


def quoted(text: str) -> str:
    """A name as a part of an address."""
    return quote(text, safe="", errors="replace")


@lru_cache(4096)
def address(*parts: str, **query: str | int | None) -> str:
    """An address relative to the root of the site; names may have any characters. None = without that parameter."""
    text = "/".join(quoted(part) for part in parts)
    given = "&".join(f"{key}={quoted(str(value))}" for key, value in query.items() if value is not None)
    return f"{text}?{given}" if given else text


#: Kind of the subject of an event -> list in which it is looked for.
_SUBJECT_LISTS: Final = {"host": "hosts", "launcher": "launchers"}


class Links:
    """The pages of one snapshot."""

    def __init__(self, snapshot: WebSnapshot) -> None:
        self._snapshot = snapshot
        self._seen = snapshot.observed

    @cached_property
    def providers(self) -> frozenset[str]:
        """Names of the providers that have a page."""
        absent = (one.name for launcher in self._snapshot.observed.launchers for one in launcher.absent)
        return frozenset({*self._seen.providers, *absent, *(status.provider for status in self._seen.statuses)})

    @cached_property
    def labels(self) -> frozenset[str]:
        """Names of the labels that have a page."""
        broken = (label for status in self._seen.statuses for label in status.labels)
        wanted = (label for request in self._seen.requests.values() for label in request.node_types)
        return frozenset({*self._seen.labels, *broken, *wanted})

    def of_column(self, key: str) -> Link | None:
        """Where the values of a column lead to."""
        return partial(_COLUMNS[key], self) if key in _COLUMNS else None

    def pool(self, value: Any) -> str | None:
        """``<provider>/<pool>``, or the provider alone."""
        text = str(value)
        for name in (text, text.partition("/")[0], text.rpartition("/")[0]):
            if name in self.providers:
                return _page("providers", name, self.providers)
        return None

    def provider(self, value: Any) -> str | None:
        return _page("providers", value, self.providers)

    def label(self, value: Any) -> str | None:
        return _page("labels", value, self.labels)

    def node(self, value: Any) -> str | None:
        return _page("nodes", value, self._seen.nodes) or self._of_life("node", value)

    def request(self, value: Any) -> str | None:
        return _page("requests", value, self._seen.requests) or self._of_life("request", value)

    def _of_life(self, kind: str, value: Any) -> str | None:
        """Of a request or a node that ended."""
        life = self._snapshot.life(kind, str(value))
        return None if life is None else _page(f"{kind}s", value, (life.id,))

    def image(self, value: Any) -> str | None:
        return _page("images", value, self._snapshot.observed.images.images)

    def tenant(self, value: Any) -> str | None:
        """The requests of a tenant."""
        return address("requests", tenant=str(value))

    def launcher(self, value: Any) -> str | None:
        """The launchers whose row has the name."""
        return address("launchers", q=str(value))

    def subject(self, value: Any) -> str | None:
        """What an event is about, e.g. ``node 0000000001`` or ``label gpu of cloud-1/main``."""
        kind, _, name = str(value).partition(" ")
        if kind == "label":
            return self.label(name.rpartition(" of ")[0] or name)
        pages = {
            "request": self.request,
            "node": self.node,
            "provider": self.pool,
            "pool": self.pool,
            "image": self.image,
        }
        if kind in pages:
            return pages[kind](name)
        return address(_SUBJECT_LISTS[kind], q=name) if kind in _SUBJECT_LISTS else None

    def host(self, value: Any) -> str | None:
        """The row of a static host, by its whole name or the one without user and port."""
        return address("hosts", q=str(value)) if str(value) in self._hosts else None

    @cached_property
    def _hosts(self) -> frozenset[str]:
        hosts = (host.name for status in self._seen.statuses for host in status.hosts)
        return frozenset(name for host in hosts for name in (host, host_name(host)))

    def of_text(self, text: str) -> list[CellText]:
        """A sentence: what it names and is there is a link, a command too, if it shows what a page shows."""
        parts, end = [], 0
        for found in _NAMED.finditer(text):
            begin, name, command = found.start(), found["name"], found["command"]
            if command:
                kind, name = "", command.partition("nodepool explain ")[2]
            elif name:
                kind, begin = found["kind"], found.start("name")
            else:
                kind, name = "", found[0]
            kinds = [_OF_KINDS[kind]] if kind else _OF_KINDS.values()
            href = next((href for of in kinds if name and (href := of(self, name)) is not None), None)
            is_command = bool(command) and href is None and _SAFE.fullmatch(command) is not None
            if href is not None or is_command:
                parts += [CellText(text[end:begin])] if begin > end else []
                parts.append(CellText(text[begin : found.end()], href, command=is_command))
                end = found.end()
        return [*parts, CellText(text[end:])] if text[end:] else parts


#: Word before a name in a sentence -> what the name is of.
_OF_KINDS: Final[Mapping[str, Callable[[Links, Any], str | None]]] = {
    "request": Links.request,
    "node": Links.node,
    "provider": Links.provider,
    "pool": Links.pool,
    "label": Links.label,
    "host": Links.host,
    "image": Links.image,
}
#: A command, a name after its kind, an id, or a pool.
_NAMED: Final = re.compile(
    r"(?P<command>nodepool (?:explain|release|check|erase|image-[a-z]+) [^\s,;]*[^\s,;:.]"
    r"|nodepool (?:resume|installation) \S+ [^\s,;]*[^\s,;:.]|nodepool delete \d+(?: \d+)*|nodepool status)"
    rf"|\b(?P<kind>{'|'.join(_OF_KINDS)}) (?P<name>[^\s,;]*[^\s,;:.])"
    r"|\b(?:\d{3}-)?\d{10}\b|[\w.-]+/[\w.-]*\w"
)
#: A command that does no more than it says: names come from other programs, and this one is for a shell.
_SAFE: Final = re.compile(r"[\w @%+=:./*-]*")
#: Key of a column -> what its values are.
_COLUMNS: Final[Mapping[str, Callable[[Links, Any], str | None]]] = {
    **dict.fromkeys(("pool", "pools"), Links.pool),
    "provider": Links.provider,
    **dict.fromkeys(("label", "labels", "node_types"), Links.label),
    "nodes": Links.node,
    "host": Links.host,
    **dict.fromkeys(("allocated_to", "request"), Links.request),
    "image": Links.image,
    "tenant": Links.tenant,
    "launchers": Links.launcher,
    "subject": Links.subject,
}


def _page(kind: str, name: Any, known: Collection[str]) -> str | None:
    """A half of a surrogate pair, which JSON allows, cannot be in an address."""
    text = str(name)
    return address(kind, text) if text in known and text.isprintable() else None
