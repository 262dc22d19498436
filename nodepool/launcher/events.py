# SPDX-License-Identifier: Apache-2.0
"""Events of a launcher, in memory.

First the ring of the last ones (`EventRing`), then what makes them: nodes, maintenance records, images and reloads.
Last what to do about labels that no pool has.
"""

from __future__ import annotations

import os
import socket
import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeAlias

from nodepool.clock import wall_time
from nodepool.config.problems import did_you_mean
from nodepool.model import states
from nodepool.model.event import Event, What, clipped
from nodepool.model.status import ReloadStatus

if TYPE_CHECKING:
    from nodepool.config.objects import Label
    from nodepool.model.image import ImageBuild, ImageUpload, ImageView
    from nodepool.model.node import Node
    from nodepool.model.status import MaintenanceRecords
    from nodepool.plan.triage import PoolInfo
    from nodepool.zk.cache import RecordCache
    from nodepool.zk.caches import ImageCache, MaintenanceCache

#: Events that are kept.
SIZE: Final = 2000
#: The same event of another request or node within so many seconds is counted, not kept again. It is looked for among
#: as many of the last events.
JOIN_SECONDS: Final = 60.0
JOIN_DEPTH: Final = 20
#: Kinds of subjects that come in hundreds for one cause.
_MANY: Final = frozenset({"request", "node"})


class EventRing:
    """Any thread may add and read; neither blocks. ``_lock`` is held for a few operations of the memory.

    :param size: how many events are kept; older ones are forgotten.
    :param clock: seconds since the epoch.
    """

    def __init__(self, size: int = SIZE, clock: Callable[[], float] = wall_time) -> None:
        self._clock = clock
        self._host = socket.gethostname()
        self._lock = threading.Lock()
        self._events: deque[Event] = deque(maxlen=size)
        #: Called after each event, in the thread that adds it; must not block.
        self.on_event: Callable[[], None] = lambda: None

    def add(
        self,
        subject: str,
        what: What,
        text: str = "",
        code: str = "",
        *,
        at: float | None = None,
        actor: str | None = None,
        pool: str | None = None,
    ) -> None:
        """Note what happened. Parameters as for `Event`.

        :param at: None = now.
        :param actor: None = this launcher. ``pool``: of it, that did it.
        """
        by = actor or (f"{self._host} {pool}" if pool else self._host)
        self.put(Event(at or self._clock(), by, subject, what.value, code, text))

    def put(self, event: Event) -> None:
        """Note an event that is made already."""
        with self._lock:
            self._events.append(self._joined(replace(event, text=clipped(event.text))))
        self.on_event()

    def _joined(self, event: Event) -> Event:
        """An event together with one that it repeats, which is not kept any more."""
        if event.kind not in _MANY:
            return event
        for back in range(1, min(len(self._events), JOIN_DEPTH) + 1):
            earlier = self._events[-back]
            if event.at - earlier.at < JOIN_SECONDS and event.repeats(earlier):
                del self._events[-back]
                return event.joined_to(earlier)
        return event

    def last(self, count: int) -> list[Event]:
        """The newest events, the oldest of them first."""
        with self._lock:
            events = list(self._events)
        return events[-count:] if count else []


# What changes in the caches. Everything of these belongs to the thread of the cache. They are made before it follows
# ZooKeeper, so that nothing is missed.


class NodeEvents:
    """Nodes that were put on hold, or that operators delete by commands."""

    def __init__(self, nodes: RecordCache[Node], ring: EventRing) -> None:
        self._nodes = nodes
        self._ring = ring
        #: Ids of nodes on hold -> since when. One that was held, given back and held again while the connection was
        #: away is seen on hold all the time.
        self._held: dict[str, float | None] = {}
        #: Ids of nodes that an operator deletes.
        self._deleted: set[str] = set()
        nodes.add_listener(self._changed)

    def _changed(self, node_id: str) -> None:
        node = self._nodes.get(node_id)
        if node is None:
            self._deleted.discard(node_id)
        elif node.state == states.DELETING and node.deleted_by and node_id not in self._deleted:
            self._deleted.add(node_id)
            by = node.deleted_by
            self._ring.add(f"node {node_id}", What.CHANGED, f"delete by {by}", at=node.state_time, actor=by)
        if node is None or node.state != states.HOLD:
            self._held.pop(node_id, None)
        elif node_id not in self._held or self._held[node_id] != node.state_time:
            self._held[node_id] = node.state_time
            self._ring.add(f"node {node_id}", What.HELD, why_held(node), at=node.state_time)


def why_held(node: Node) -> str:
    """By whom and why a node is on hold, as far as its record says."""
    by = [f"by {node.hold_by}"] if node.hold_by else []
    if node.comment:
        return ": ".join([*by, str(node.comment)])
    return " ".join([*by, f"for job {node.hold_job}"] if node.hold_job else by)


class MaintenanceEvents:
    """What operators pause, drain or quarantine, and its end."""

    def __init__(self, records: MaintenanceCache, ring: EventRing) -> None:
        self._cache = records
        self._ring = ring
        self._known: MaintenanceRecords = {}
        records.add_listener(self._changed)

    def _changed(self) -> None:
        before, now = self._known, self._cache.snapshot()
        self._known = now
        for key, record in now.items():
            old = before.get(key)
            if old is None or (old.mode, old.since, old.reason) != (record.mode, record.since, record.reason):
                self._ring.add(" ".join(key), What.MAINTENANCE_BEGAN, record.text, at=record.since)
        for key in [key for key in before if key not in now]:
            self._ring.add(" ".join(key), What.MAINTENANCE_ENDED)


#: States in which a build or an upload has ended, and what that is.
_ENDS = {states.READY: What.AVAILABLE, states.FAILED: What.FAILED}
#: What of a build or an upload is an event, which operator caused it, and when, in seconds since the epoch.
_End: TypeAlias = tuple[What, str | None, float | None]


class ImageEvents:
    """The pauses of images, what is asked for, and how builds and uploads end."""

    def __init__(self, images: ImageCache, ring: EventRing) -> None:
        self._cache = images
        self._ring = ring
        #: Image -> is it paused, when was a build asked for (None = none is), and the ends of its builds and uploads.
        self._known: dict[str, tuple[bool, float | None, Mapping[str, _End]]] = {}
        self._begun = False
        images.add_listener(self._changed)

    def _changed(self, image: str) -> None:
        view = self._cache.snapshot()
        for name in [image] if image else {*view.images, *self._known}:
            self._look(name, view.image(name))
        # What was there at the start is no event.
        self._begun = self._begun or self._cache.complete

    def _look(self, name: str, image: ImageView) -> None:
        ends = _ends_of(image)
        paused, asked, ended = self._known.get(name, (False, None, {}))
        self._known[name] = image.paused, image.build_requested, ends
        if not self._begun:
            return
        if image.paused != paused:
            what = What.MAINTENANCE_BEGAN if image.paused else What.MAINTENANCE_ENDED
            self._ring.add(f"image {name}", what, "it is not built" if image.paused else "it is built again")
        if image.build_requested is not None and image.build_requested != asked:
            self._ring.add(f"image {name}", What.CHANGED, "a build is asked for", at=image.build_requested)
        for text, (what, actor, at) in ends.items():
            if text not in ended:
                self._ring.add(f"image {name}", what, text, at=at, actor=actor)


def _ends_of(image: ImageView) -> dict[str, _End]:
    """Builds and uploads that have ended, or that an operator deletes, each with a text."""
    found: dict[str, _End] = {}

    def look(about: str, record: ImageBuild | ImageUpload) -> None:
        by = record.deleted_by
        if record.state in _ENDS:
            found[f"{about} is {record.state}"] = _ENDS[record.state], None, record.state_time
        elif record.state == states.DELETING and by is not None:
            found[f"{about}: delete by {by}"] = What.CHANGED, by, record.state_time

    for build in image.builds.values():
        if build.record is not None:
            builder = f" of {build.record.builder}" if build.record.builder else ""
            look(f"build {build.id}{builder}", build.record)
        for upload in build.all_uploads():
            look(f"upload {upload.id} of build {build.id} to {upload.provider_name}", upload)
    return found


# `ReloadEvents`: what reloads of the configuration changed, or why they failed, as events.

#: Events of one reload; the log has all changes.
MAX_EVENTS: Final = 20


class ReloadEvents:
    """For the main thread; any thread may read ``last``.

    :param ring: where the events go.
    :param path: of the configuration file.
    """

    def __init__(self, ring: EventRing, path: str, clock: Callable[[], float] = wall_time) -> None:
        self._ring = ring
        self._subject = f"configuration {os.path.basename(path)}"
        self._clock = clock
        #: The last reload; None = there was none.
        self.last: ReloadStatus | None = None

    def ended(self, ok: bool, texts: Sequence[str]) -> None:
        """See `nodepool.runtime.reload.Configuration.on_outcome`. Does not block."""
        shown = list(texts[:MAX_EVENTS]) or ["no key has another value"]
        if len(texts) > MAX_EVENTS:
            shown.append(f"and {len(texts) - MAX_EVENTS} more; the log of the launcher has all")
        self.last = ReloadStatus(self._clock(), ok, clipped("; ".join(shown)))
        for text in shown:
            self._ring.add(self._subject, What.RELOADED if ok else What.RELOAD_FAILED, text)


# `LabelHints`: what to do about labels that no pool has, or that no pool has together.

#: Labels whose hints are remembered: to search thousands of labels for a similar one takes milliseconds.
MAX_HINTS: Final = 1000


class LabelHints:
    """Any thread may ask. What two threads find at the same time is the same.

    :param registered: all registered pools: the same object as long as nothing changes.
    :param configured: labels of the configuration of this launcher.
    """

    def __init__(
        self, registered: Callable[[], Sequence[PoolInfo]], configured: Callable[[], Mapping[str, Label]]
    ) -> None:
        self._registered = registered
        self._configured = configured
        #: The pools that were looked at, their labels, and the hints.
        self._known: tuple[Sequence[PoolInfo], frozenset[str], dict[str, str]] = ([], frozenset(), {})

    def hint(self, labels: Collection[str]) -> str:
        """What to do about labels that no pool can serve, as an addition to a sentence.

        :param labels: of one request.
        :return: empty if one pool has all of them.
        """
        pools = self._registered()
        known = self._known
        if known[0] is not pools:
            served = frozenset(label for pool in pools for label in pool.labels)
            known = self._known = (pools, served, {})
        _, served, hints = known
        told = []
        for label in sorted(set(labels) - served):
            if label not in hints:
                if len(hints) >= MAX_HINTS:
                    hints.clear()
                hints[label] = self._hint(label, served)
            told.append(hints[label])
        wanted = set(labels)
        if not told and not any(wanted <= pool.labels for pool in pools):
            told.append(f"no pool has all of {', '.join(sorted(wanted))}: the nodes of a request come from one pool")
        return "".join(f"; {text}" for text in told)

    def _hint(self, label: str, served: Collection[str]) -> str:
        configured = self._configured()
        if label in configured:
            if configured[label].pools:
                return f"no pool that runs has {label}; nodepool status says why the provider that has it is not served"
            return f"no pool that runs has {label}, although it is among the configured labels: add it to a pool"
        similar = did_you_mean(label, {*served, *configured})
        return f"no pool has {label}{similar or ': correct the nodeset in Zuul, or add the label'}"
