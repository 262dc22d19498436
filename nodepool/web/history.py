# SPDX-License-Identifier: Apache-2.0
"""What was: numbers of the last seven days for pictures, and the lives of requests and nodes, also of those that ended.

Each ``nodepool-web`` keeps its own, in memory and in a bounded SQLite file (`HistoryFile`). To read it, from any
thread; nothing of this blocks or does I/O::

    history.life("node", "0000000042")  # a `Life`: times of its states, for whom it was, how it ended; or None
    history.ended("request")            # the last `MOST_ENDED` that ended, the newest first
    history.samples(60)                 # numbers of each minute of a day, see `STEPS` and `sample_of`

Changes of records come from listeners of the caches, numbers from snapshots: ZooKeeper is asked for nothing more.
`HistoryWorker` is the thread that takes both, and the only one that writes.
"""

from __future__ import annotations

import logging
import math
import sqlite3
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from nodepool import fast_json
from nodepool.clock import wall_time
from nodepool.guard import Guard
from nodepool.listing.nodes import project_of
from nodepool.model import states
from nodepool.model.node import Node
from nodepool.model.record import Record
from nodepool.model.request import origin_of
from nodepool.plan.explain import WaitCause, causes, wait_kind
from nodepool.plan.observed import Observed
from nodepool.plan.pool_summary import by_provider, capacity, summarize
from nodepool.plan.triage import MIN_READY_REQUESTOR
from nodepool.runtime.worker import PassThread
from nodepool.web.answers import to_json
from nodepool.web.snapshot import SnapshotMaker, WebSnapshot
from nodepool.zk.cache import RecordCache
from nodepool.zk.nodes import NodepoolCache

log = logging.getLogger("nodepool.web")

KINDS: Final = ("node", "request")
#: Lives of one kind that ended and are kept: the last ones.
MOST_ENDED: Final = 500
#: Lives of one kind that have not ended and are followed.
MOST_OPEN: Final = 10_000
#: States of one life: the first one and the last ones are kept.
MOST_STATES: Final = 40
#: Longest text of a life in characters, and most entries of a list in it.
MOST_TEXT: Final = 300
MOST_ENTRIES: Final = 20
#: The reason of an end is looked for so long, in seconds: launchers report it some seconds later.
REASON_SECONDS: Final = 60.0
#: A request that waited for longer has what it waited for as its reason, in seconds.
SLOW_SECONDS: Final = 60.0


@dataclass(frozen=True)
class Life:
    """A request or a node, from its begin to its end. It never changes.

    :param kind: one of `KINDS`.
    :param created: when it began, in seconds since the epoch; None = not known.
    :param times: each state that was seen, and since when it was in it, in seconds since the epoch, in their order.
    :param facts: what is known of it: ``labels``, ``provider``, ``tenant``, ``job``, ``pipeline``, ``project``; of a
        node also ``pool``, ``launcher``, ``request``, ``external_id``, ``hostname``, addresses and ``comment``; of a
        request ``nodes``, ``requestor``, ``event_id`` and whatever texts its requestor gave.
    :param ended: when its record was removed, in seconds since the epoch; None = it is there.
    :param result: of a request ``fulfilled``, ``failed`` or ``removed`` (before it was answered); of a node ``used``,
        ``failed`` (its launch) or ``unused``. Empty = it has not ended.
    :param reason: why it failed or was deleted, or what a request waited for that was slow or removed before it was
        answered, as far as that was reported.
    """

    kind: str
    id: str
    created: float | None = None
    times: Sequence[tuple[str, float]] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    ended: float | None = None
    result: str = ""
    reason: str = ""

    @property
    def waited(self) -> float | None:
        """Seconds until a request was answered; None = it was not, or that is not known."""
        answered = [at for state, at in self.times if state in (states.FULFILLED, states.FAILED)]
        return None if not answered or self.created is None else max(0.0, answered[-1] - self.created)

    def with_record(self, record: Record, at: float) -> Life:
        """The same with what a record says. What is not in it any more stays known."""
        since = record.state_time or at
        times = self.times
        if not times or times[-1][0] != record.state:
            times = (*times, (str(record.state), since))
            times = times if len(times) <= MOST_STATES else (times[0], *times[1 - MOST_STATES :])
        created = getattr(record, "created_time", None) or self.created or since
        facts, of = _facts(record), self.facts.get("request")
        # A node that is for another request now has another job.
        known = self.facts if facts.get("request", of) == of else {}
        return replace(self, created=created, times=times, facts={**known, **facts})


#: Facts of a request that its nodes have, too.
_OF_JOB: Final = ("tenant", "job", "pipeline", "project", "event_id", "requestor")
_OF_NODE: Final = "provider pool launcher external_id hostname public_ipv4 public_ipv6 private_ipv4 az comment"
_OF_REQUEST: Final = "provider requestor event_id nodes declined_by"


def _facts(record: Any) -> dict[str, Any]:
    """What a record says, without what is empty."""
    if isinstance(record, Node):
        more = {"labels": record.type, "request": record.allocated_to, "tenant": record.tenant_name}
        found = {**more, "project": project_of(record), "deleted_by": record.deleted_by}
        names = _OF_NODE
    else:
        given = record.requestor_data if isinstance(record.requestor_data, dict) else {}
        texts = {str(key): value for key, value in list(given.items())[:MOST_ENTRIES] if isinstance(value, str)}
        found, names = {**texts, **origin_of(record), "labels": record.node_types}, _OF_REQUEST
    found.update({name: getattr(record, name) for name in names.split()})
    return {name[:MOST_TEXT]: _bounded(value) for name, value in found.items() if value}


def _bounded(value: Any) -> Any:
    if isinstance(value, list):
        return [str(one)[:MOST_TEXT] for one in value[:MOST_ENTRIES]]
    return str(value)[:MOST_TEXT]


# Numbers. A sample is a JSON object: "all" and each of "providers" have a list in the order of `COLUMNS`, "binding" has
# the resource of the limit of each, "waiting" requests by what they wait for, "waits" how many requests were fulfilled
# after about how long (see `_bucket`), "launches" those that ended within 15 minutes.

NODE_STATES: Final = (states.IN_USE, states.BUILDING, states.READY, states.DELETING, states.HOLD)
#: State of a node -> one of `NODE_STATES`, where it has no curve of its own.
_STATES: Final = {
    **dict.fromkeys((states.INIT, states.TESTING), states.BUILDING),
    **dict.fromkeys((states.USED, states.FAILED, states.ABORTED, states.DELETED), states.DELETING),
}
#: ``limit``: for how many nodes there is room in all; None = not known. ``most``: most nodes at any time.
COLUMNS: Final = (*NODE_STATES, "limit", "most")
#: Providers of one sample: those with most nodes.
MOST_PROVIDERS: Final = 100
#: Seconds between samples, and for how many seconds they are kept. Longer ones are made of shorter ones.
STEPS: Final[Mapping[int, int]] = {10: 3600, 60: 86_400, 600: 7 * 86_400}
Values = dict[str, Any]


def sample_of(seen: Observed, waits: Mapping[str, int], why: Mapping[str, WaitCause]) -> Values:
    """The numbers of one moment.

    :param waits: how long requests waited that were fulfilled since the last sample, by `_bucket`.
    :param why: see `waiting_for`.
    """
    by_state: defaultdict[str, Counter[str]] = defaultdict(Counter)
    by_pool: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for (provider, pool, state), count in seen.node_index.counts.items():
        by_state[provider or ""][_STATES.get(state, state)] += count
        by_pool[provider or ""][pool or ""] += count
    pools = by_provider(summarize(seen.statuses))
    rows: dict[str, list[float | None]] = {}
    binding: dict[str, str] = {}
    for name in pools.keys() | (by_state.keys() - {""}):
        counts = by_state[name]
        limit, binding[name] = capacity(pools.get(name, ()), by_pool[name]) or (None, "")
        rows[name] = [*(counts[state] for state in NODE_STATES), limit, counts.total()]
    busiest = sorted(rows, key=lambda name: (-(rows[name][-1] or 0), name))[:MOST_PROVIDERS]
    limits = [row[-2] for row in rows.values()]
    total: list[float | None] = [sum(row[place] or 0 for row in rows.values()) for place in range(len(COLUMNS))]
    total[-2] = None if None in limits else total[-2]
    launches = [status.launches for status in seen.statuses]
    waiting = Counter(wait_kind(why[one.key].code) for one in seen.waiting)
    return {
        "all": total,
        "providers": {name: rows[name] for name in busiest},
        "binding": {name: binding[name] for name in busiest},
        "waiting": {**waiting, "most": waiting.total()},
        "waits": dict(waits),
        "launches": [sum(one.ok_15m for one in launches), sum(one.failed_15m for one in launches)],
    }


def waiting_for(seen: Observed) -> Mapping[str, WaitCause]:
    """Id of each request that waits -> what for. Those that are served are not explained one by one."""
    reported = {one.id: WaitCause("", one.code, one.text) for status in seen.statuses for one in status.requests}
    served = WaitCause("", "served.", "its nodes were being launched")
    pending = {one.key: reported.get(one.key, served) for one in seen.waiting if one.state == states.PENDING}
    return pending | causes((one for one in seen.waiting if one.state == states.REQUESTED), seen)


def combined(samples: Sequence[Values]) -> Values:
    """Several samples as one: means, the most, the last limit that was known, and the sum of what was fulfilled."""
    names = dict.fromkeys(name for one in samples for name in one["providers"])
    kinds = dict.fromkeys(kind for one in samples for kind in one["waiting"])
    waits: Counter[str] = Counter()
    for one in samples:
        waits.update(one["waits"])
    waiting = {kind: _mean([one["waiting"].get(kind, 0) for one in samples]) for kind in kinds}
    return {
        "all": _row([one["all"] for one in samples]),
        "providers": {
            name: _row([one["providers"][name] for one in samples if name in one["providers"]]) for name in names
        },
        "binding": samples[-1]["binding"],
        "waiting": {**waiting, "most": max(one["waiting"]["most"] for one in samples)},
        "waits": dict(waits),
        "launches": [_mean(column) for column in zip(*(one["launches"] for one in samples), strict=True)],
    }


def _row(rows: Sequence[Sequence[float | None]]) -> list[float | None]:
    *counts, limits, most = zip(*rows, strict=True)
    return [*map(_mean, counts), limits[-1], max(most)]


def _mean(values: Sequence[float]) -> float:
    return round(math.fsum(values) / len(values), 2)


def _bucket(seconds: float) -> str:
    """Of a duration: there are ten to each power of ten, so that a percentile is known to an eighth."""
    return str(round(10 * math.log10(max(seconds, 0.01))))


class History:
    """All of it in memory, and what of it is to be written. One thread changes it, any may read."""

    def __init__(self) -> None:
        #: Kind, id, record (None = it was removed), and when that was noted.
        self._notes: deque[tuple[str, str, Record | None, float]] = deque(maxlen=100_000)
        self._open: dict[str, dict[str, Life]] = {kind: {} for kind in KINDS}
        self._ended: dict[str, dict[str, Life]] = {kind: {} for kind in KINDS}
        #: Request -> ids of its nodes, of those that are known.
        self._nodes_of: dict[str, set[str]] = {}
        #: Step -> times and samples in JSON: decoded they take ten times as much memory.
        self._samples: dict[int, deque[tuple[int, bytes]]] = {step: deque() for step in STEPS}
        #: How long requests waited that were fulfilled since the last sample.
        self._waits: Counter[str] = Counter()
        #: What requests waited for when the last sample was taken.
        self._why: Mapping[str, WaitCause] = {}
        #: Lives of an earlier process, of which it is not known whether they go on.
        self._unsure: set[tuple[str, str]] = set()
        self.changes = Changes()

    # -- readers --

    def life(self, kind: str, record_id: str) -> Life | None:
        """What is known of a request or a node; None = nothing is."""
        return self._open[kind].get(record_id) or self._ended[kind].get(record_id)

    def ended(self, kind: str) -> list[Life]:
        """The last ones that ended, the newest first."""
        return list(self._ended[kind].copy().values())[::-1]

    def samples(self, step: int) -> list[tuple[int, Values]]:
        """Samples of a step of `STEPS` with their times, the oldest first; see `sample_of`."""
        return [(at, fast_json.loads_any(data)) for at, data in self._samples[step].copy()]

    @property
    def sampled_at(self) -> int:
        """When the last sample was taken, in seconds since the epoch; 0 = there is none."""
        samples = self._samples[min(STEPS)]
        return samples[-1][0] if samples else 0

    # -- lives --

    def follow(self, cache: NodepoolCache) -> None:
        """Note what changes in a cache from now on."""
        cache.nodes.add_listener(partial(self._on_change, "node", cache.nodes))
        cache.requests.add_listener(partial(self._on_change, "request", cache.requests))

    def _on_change(self, kind: str, records: RecordCache[Any], record_id: str) -> None:
        """In the connection thread, where the record is as it was at this change."""
        if record_id:
            self.note(kind, record_id, records.get(record_id))

    def note(self, kind: str, record_id: str, record: Record | None) -> None:
        """A record has changed; None = it was removed. Any thread; does not block."""
        self._notes.append((kind, record_id, record, wall_time()))

    def take_notes(self) -> None:
        """Bring the lives up to date."""
        for _ in range(len(self._notes)):
            kind, record_id, record, at = self._notes.popleft()
            with Guard(log, "The history of %s %s cannot be kept", kind, record_id):
                self._lives_on(kind, record_id, record, at)

    def _lives_on(self, kind: str, record_id: str, record: Record | None, at: float) -> None:
        lives = self._open[kind]
        self._unsure.discard((kind, record_id))
        old = lives.get(record_id)
        if record is None:
            if old is not None:
                self._end(old, at)
            return
        if getattr(record, "requestor", None) == MIN_READY_REQUESTOR and kind == "request":
            # No job waits for it; while they fail there is one every few seconds.
            return
        if old is None and len(lives) >= MOST_OPEN:
            return
        before = old or self._ended[kind].pop(record_id, None) or Life(kind, record_id)
        new = replace(before.with_record(record, at), ended=None, result="", reason="")
        request = self.life("request", str(new.facts.get("request"))) if kind == "node" else None
        if request is not None:
            new = replace(new, facts={**new.facts, **{n: request.facts[n] for n in _OF_JOB if n in request.facts}})
        if new == old:
            return
        self._keep(new)
        if request is not None:
            self._nodes_of.setdefault(request.id, set()).add(record_id)
            if request.result == "removed":
                # Its nodes were read after it was removed.
                self._keep(self._with_result(request, request.ended or at))
        is_fulfilled = kind == "request" and record.state == states.FULFILLED and new.times != before.times
        # At the start there may be some that were fulfilled long ago.
        if is_fulfilled and (old is not None or at - new.times[-1][1] < REASON_SECONDS):
            self._waits[_bucket(new.waited or 0.0)] += 1

    def _keep(self, life: Life) -> None:
        ended = self._ended[life.kind]
        lives = self._open[life.kind] if life.ended is None else ended
        lives[life.id] = life
        self.changes.lives[life.kind, life.id] = life
        while len(ended) > MOST_ENDED:
            oldest = next(iter(ended))
            del ended[oldest]
            self._nodes_of.pop(oldest, None)
            self.changes.lives[life.kind, oldest] = None

    def _end(self, life: Life, at: float, reason: str = "") -> None:
        del self._open[life.kind][life.id]
        over = self._with_result(life, at)
        why = self._why.get(life.id) if life.kind == "request" else None
        if why is not None and (over.result != states.FULFILLED or (over.waited or 0.0) > SLOW_SECONDS):
            reason = reason or f"it waited: {why.text}"[:MOST_TEXT]
        self._keep(replace(over, reason=over.reason or reason))

    def _with_result(self, life: Life, at: float) -> Life:
        """A life that ended. ``at``: seconds since the epoch."""
        seen = {state for state, _ in life.times}
        failed = bool(seen & {states.FAILED, states.ABORTED})
        if life.kind == "node":
            by = life.facts.get("deleted_by")
            result = "failed" if failed else "used" if seen & {states.IN_USE, states.USED} else "unused"
            return replace(life, ended=at, result=result, reason=f"deleted by {by}" if by else "")
        if failed or states.FULFILLED in seen:
            return replace(life, ended=at, result=str(life.times[-1][0]))
        # It may have been fulfilled and removed before anything was read of it.
        nodes = [self.life("node", node_id) for node_id in self._nodes_of.get(life.id, ())]
        served = [
            node for node in nodes if node is not None and {states.READY, states.IN_USE} & dict(node.times).keys()
        ]
        if not served or len(served) < len(life.facts.get("labels", ())):
            return replace(life, ended=at, result="removed")
        facts = {**life.facts, "nodes": sorted(node.id for node in served)}
        life = replace(
            life, ended=at, result=states.FULFILLED, times=(*life.times, (states.FULFILLED, at)), facts=facts
        )
        self._waits[_bucket(life.waited or 0.0)] += 1
        return life

    def _settle(self, seen: Observed) -> None:
        """End the lives that ended while no process followed them."""
        there = {"node": seen.nodes, "request": seen.requests}
        unsure, self._unsure = self._unsure, set()
        for kind, record_id in sorted(unsure):
            if record_id not in there[kind]:
                self._end(self._open[kind][record_id], seen.now, "nodepool-web did not run when it ended")

    def _find_reasons(self, seen: Observed) -> None:
        """Why requests and nodes failed that ended a moment ago, as launchers report it."""
        known = {event.subject: event.text for event in seen.events}
        of_pool: dict[tuple[Any, Any], str] = {}
        for status in seen.statuses:
            known.update((f"request {one.id}", one.text) for one in status.declined)
            error = status.launches.last_error
            if error is not None:
                known[f"node {error.node}"] = error.text
                of_pool[status.provider, status.pool] = f"a launch of its pool failed at that time: {error.text}"
        for kind in KINDS:
            for life in self.ended(kind):
                age = seen.now - (life.ended or 0.0)
                if age > REASON_SECONDS:
                    break
                if life.result != states.FAILED or (life.reason and kind == "node"):
                    continue
                text = known.get(f"{kind} {life.id}", "")
                if not text and age > REASON_SECONDS / 2:
                    # Of many launches that failed at once a pool reports the last one only.
                    text = of_pool.get((life.facts.get("provider"), life.facts.get("pool")), "")
                if text and text[:MOST_TEXT] != life.reason:
                    self._keep(replace(life, reason=text[:MOST_TEXT]))

    # -- numbers --

    def sample(self, snapshot: WebSnapshot) -> None:
        """Take a sample of a snapshot that shows all that ZooKeeper has. Does not block."""
        seen = snapshot.observed
        self._settle(seen)
        self._find_reasons(seen)
        waits, self._waits = self._waits, Counter()
        shortest = min(STEPS)
        self._why = waiting_for(seen)
        self._put(shortest, int(seen.now) // shortest * shortest, sample_of(seen, waits, self._why))

    def _put(self, step: int, at: int, values: Values) -> None:
        samples = self._samples[step]
        while samples and samples[-1][0] >= at:
            # A clock that was set back.
            samples.pop()
        longer = min((one for one in STEPS if one > step), default=None)
        if longer is not None and samples and samples[-1][0] // longer != at // longer:
            begin = samples[-1][0] // longer * longer
            self._put(longer, begin, combined(_since(samples, begin)))
        data = to_json(values)
        samples.append((at, data))
        self.changes.samples.append((step, at, data))
        while samples[0][0] <= at - STEPS[step]:
            samples.popleft()

    # -- the file --

    def take_changes(self) -> Changes:
        """What is not in the file yet."""
        changes, self.changes = self.changes, Changes()
        return changes

    def everything(self) -> Changes:
        """All that belongs into the file."""
        samples = [(step, at, data) for step, some in self._samples.items() for at, data in some]
        lives = [life for lives in (*self._ended.values(), *self._open.values()) for life in lives.values()]
        return Changes({(life.kind, life.id): life for life in lives}, samples)

    def load(self, kept: Changes) -> None:
        """Begin with what an earlier process has kept. What is known already is newer."""
        newer = self.everything()
        for step, some in self._samples.items():
            begin = some[0][0] if some else math.inf
            oldest = wall_time() - STEPS[step]
            some.extendleft(
                (at, data) for of, at, data in sorted(kept.samples, reverse=True) if of == step and oldest < at < begin
            )
        for key, life in kept.lives.items():
            if life is not None and key not in newer.lives:
                (self._open if life.ended is None else self._ended)[life.kind][life.id] = life
                if life.ended is None:
                    self._unsure.add(key)
        for kind in KINDS:
            ended = sorted(self._ended[kind].values(), key=lambda life: life.ended or 0.0)
            self._ended[kind] = {life.id: life for life in ended[-MOST_ENDED:]}
        for life in self._open["node"].values():
            if life.facts.get("request"):
                self._nodes_of.setdefault(life.facts["request"], set()).add(life.id)


def _since(samples: Iterable[tuple[int, bytes]], begin: int) -> list[Values]:
    return [fast_json.loads_any(data) for at, data in samples if at >= begin]


@dataclass
class Changes:
    """What the file has or gets. ``lives``: None = it is kept no more. ``samples``: step, time, JSON."""

    lives: dict[tuple[str, str], Life | None] = field(default_factory=dict)
    samples: list[tuple[int, int, bytes]] = field(default_factory=list)


# The file. It is never deleted or overwritten if something else is in it.

#: ``PRAGMA application_id`` of our files, and ``user_version`` of their tables.
APPLICATION: Final = 0x4E505748
FORMAT: Final = 1
#: Most bytes of the file; its log of writes comes to as much at most, for a moment.
MOST_BYTES: Final = 64 * 1024 * 1024
_PAGE_BYTES: Final = 4096
_TABLES: Final = (
    "CREATE TABLE IF NOT EXISTS samples (step INTEGER, at INTEGER, data BLOB, PRIMARY KEY (step, at)) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS lives (name BLOB PRIMARY KEY, data BLOB) WITHOUT ROWID",
)


class HistoryFile:
    """An SQLite file with what a `History` has. For one thread; everything blocks for the file system.

    It is for one process: of two the second one finds it locked.

    :raises sqlite3.Error: it cannot be used. All methods raise it.
    :raises OSError: it cannot be made.
    """

    def __init__(self, path: Path) -> None:
        if not path.exists():
            # Who may read it sees what pages show only after a login.
            path.touch(0o600)
        self._database = sqlite3.connect(path, timeout=1.0, isolation_level=None, check_same_thread=False)
        try:
            self._open()
        except sqlite3.Error:
            self.close()
            raise

    def _open(self) -> None:
        ask = self._database.execute
        ask("PRAGMA locking_mode = EXCLUSIVE")
        mark, version, tables = (
            ask(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version", "schema_version")
        )
        if (mark, version) != (APPLICATION, FORMAT) and (mark or version or tables):
            raise sqlite3.DatabaseError("it is no history of this release of nodepool-web")
        ask(f"PRAGMA page_size = {_PAGE_BYTES}")
        ask("PRAGMA journal_mode = WAL")
        ask("PRAGMA synchronous = NORMAL")
        ask(f"PRAGMA max_page_count = {MOST_BYTES // _PAGE_BYTES}")
        ask("BEGIN IMMEDIATE")
        for one in (*_TABLES, f"PRAGMA application_id = {APPLICATION}", f"PRAGMA user_version = {FORMAT}", "COMMIT"):
            ask(one)

    def load(self) -> Changes:
        """All that is in it; what cannot be read is left out."""
        kept = Changes(samples=self._database.execute("SELECT step, at, data FROM samples").fetchall())
        for (data,) in self._database.execute("SELECT data FROM lives"):
            with Guard(log, "A part of the history cannot be read"):
                life = Life(**fast_json.loads_any(data))
                kept.lives[life.kind, life.id] = replace(
                    life, times=tuple((str(state), at) for state, at in life.times)
                )
        return kept

    def write(self, changes: Changes, *, instead: bool = False) -> None:
        """Write changes, all or nothing.

        :param instead: nothing of what is there stays.
        """
        ask = self._database
        ask.execute("BEGIN IMMEDIATE")
        try:
            if instead:
                ask.execute("DELETE FROM samples")
                ask.execute("DELETE FROM lives")
            ask.executemany("INSERT OR REPLACE INTO samples VALUES (?, ?, ?)", changes.samples)
            newest = {step: at for step, at, _ in changes.samples}
            old = [(step, at - STEPS[step], at) for step, at in newest.items()]
            ask.executemany("DELETE FROM samples WHERE step = ? AND (at <= ? OR at > ?)", old)
            # Any text may be an id; not every text can be stored as one.
            lives = [("/".join(key).encode("utf-8", "replace"), life) for key, life in changes.lives.items()]
            ask.executemany("DELETE FROM lives WHERE name = ?", [(name,) for name, life in lives if life is None])
            kept = [(name, to_json(asdict(life))) for name, life in lives if life is not None]
            ask.executemany("INSERT OR REPLACE INTO lives VALUES (?, ?)", kept)
            ask.execute("COMMIT")
        except sqlite3.Error:
            if ask.in_transaction:
                ask.execute("ROLLBACK")
            raise

    def close(self) -> None:
        """Close it; nothing else may follow."""
        self._database.close()


class HistoryWorker(PassThread):
    """Takes samples and follows lives. Errors of the file are logged, and the history goes on in memory.

    :param path: of the file; its directory has to be there.
    """

    error_text = "Error in the history of the web pages, going on"

    def __init__(self, history: History, snapshots: SnapshotMaker, path: str) -> None:
        super().__init__("History", log, NOTES_SECONDS)
        self._history = history
        self._snapshots = snapshots
        self._path = Path(path)
        self._file: HistoryFile | None = None
        #: When the file is tried again.
        self._again_at = -math.inf
        self._loaded = self._failed = False
        self._sampled_at = 0

    def run(self) -> None:
        try:
            super().run()
        finally:
            with Guard(self.log, self.error_text):
                self._save()
                if self._file is not None:
                    self._file.close()

    def run_once(self) -> float | None:
        """Follow what has changed. When it is time, take a sample and write."""
        if not self._loaded and self._file is None:
            self._save()
        self._history.take_notes()
        due = int(wall_time()) // min(STEPS)
        if due != self._sampled_at:
            # At the start it is taken as soon as everything is known.
            if self._snapshots.complete:
                self._sampled_at = due
                self._history.sample(self._snapshots.latest())
            self._save()
        return NOTES_SECONDS

    def _save(self) -> None:
        changes = self._history.take_changes()
        if self._file is not None and not (changes.lives or changes.samples):
            return
        # A clock of the epoch may go back.
        if self._file is None and 0 < self._again_at - wall_time() <= AGAIN_SECONDS:
            return
        try:
            if self._file is None:
                self._file = HistoryFile(self._path)
                if not self._loaded:
                    self._history.load(self._file.load())
                    self._loaded = True
                # What it does not have from us, and what is too old.
                self._file.write(self._history.everything(), instead=True)
            else:
                self._file.write(changes)
        except (sqlite3.Error, OSError) as error:
            self._again_at = wall_time() + AGAIN_SECONDS
            if self._file is not None:
                self._file.close()
                self._file = None
            level = logging.DEBUG if self._failed else logging.WARNING
            self.log.log(level, "The history of the web pages is kept in memory only: %s: %s", self._path, error)
            self._failed = True
        else:
            if self._failed:
                self.log.info("The history of the web pages is in %s again", self._path)
            self._failed = False


#: Seconds between two looks at what has changed.
NOTES_SECONDS: Final = 1.0
#: A file that cannot be used is tried again after so many seconds.
AGAIN_SECONDS: Final = 300.0
