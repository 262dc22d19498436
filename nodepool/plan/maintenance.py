# SPDX-License-Identifier: Apache-2.0
"""Which maintenance record holds for what, and until when (rules MT); then what an operator means by a name."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from nodepool.model.config_keys import did_you_mean
from nodepool.model.node import Node
from nodepool.model.reasons import Reason, ReasonCode
from nodepool.model.status import Maintenance, MaintenanceRecords, Mode

#: Between the clocks of two hosts, at most: a record that is over by so much is over for all launchers.
CLOCK_SKEW_SECONDS: Final = 10.0

#: What a request shows that waits for the end of a record.
_CODES: Mapping[tuple[str, Mode], ReasonCode] = {
    ("provider", Mode.PAUSE): ReasonCode.PROVIDER_PAUSED,
    ("provider", Mode.DRAIN): ReasonCode.PROVIDER_DRAINING,
    ("pool", Mode.PAUSE): ReasonCode.POOL_PAUSED,
    ("pool", Mode.DRAIN): ReasonCode.POOL_DRAINING,
    ("label", Mode.PAUSE): ReasonCode.LABEL_PAUSED,
    ("launcher", Mode.PAUSE): ReasonCode.LAUNCHER_PAUSED,
    ("launcher", Mode.DRAIN): ReasonCode.LAUNCHER_DRAINING,
}


def of_subject(records: MaintenanceRecords, kind: str, name: str, now: float) -> Maintenance | None:
    """The record of a subject that holds now.

    :param kind: a key of `nodepool.model.status.MODES`.
    :param now: seconds since the epoch.
    """
    record = records.get((kind, name))
    return None if record is None or record.is_over(now) else record


def of_launcher(records: MaintenanceRecords, host_names: Iterable[str], now: float) -> Maintenance | None:
    """The record of a launcher that holds now; one that drains it comes first.

    :param host_names: all names of its host.
    """
    found = [record for name in host_names if (record := of_subject(records, "launcher", name, now)) is not None]
    return min(found, key=lambda record: record.mode is not Mode.DRAIN, default=None)


def of_pool(
    records: MaintenanceRecords, host_names: Iterable[str], provider: str, pool: str, now: float
) -> Maintenance | None:
    """Why a pool takes nothing new: the record of its launcher, its provider or its own, in this order.

    :param host_names: all names of the launcher's host.
    """
    return (
        of_launcher(records, host_names, now)
        or of_subject(records, "provider", provider, now)
        or of_subject(records, "pool", f"{provider}/{pool}", now)
    )


def of_labels(records: MaintenanceRecords, now: float) -> dict[str, Maintenance]:
    """Label -> the record that holds for it now."""
    return {name: record for (kind, name), record in records.items() if kind == "label" and not record.is_over(now)}


def of_host(
    records: MaintenanceRecords, host: str, username: str | None, port: int | None, now: float
) -> Maintenance | None:
    """The record that holds for a static host now: one of ``<user>@<host>:<port>``, or one of the host's name alone."""
    return of_subject(records, "host", f"{username}@{host}:{port}", now) or of_subject(records, "host", host, now)


def of_node(records: MaintenanceRecords, node: Node, label: str, now: float) -> Maintenance | None:
    """The record because of which nothing new is put on a node: of its provider, pool, label or static host.

    :param label: of the node, for which it is used.
    """
    if not records:
        return None
    found = (
        of_subject(records, "provider", node.provider or "", now),
        of_subject(records, "pool", f"{node.provider}/{node.pool}", now),
        of_subject(records, "label", label, now),
        of_host(records, node.hostname or "", node.username, node.connection_port, now),
    )
    return next((record for record in found if record is not None), None)


def next_end(records: MaintenanceRecords, now: float) -> float | None:
    """When the next record ends, in seconds since the epoch; None = none of them ends by itself."""
    return min(
        (record.until for record in records.values() if record.until is not None and record.until > now), default=None
    )


def ended(records: MaintenanceRecords, now: float) -> list[Maintenance]:
    """Records whose end has come."""
    return [record for record in records.values() if record.is_over(now)]


def reason(record: Maintenance) -> Reason:
    """Why requests wait that a record holds back. Raises KeyError: it is that of a host."""
    numbers = {"since": record.since}
    if record.until is not None:
        numbers["until"] = record.until
    return Reason(_CODES[record.kind, record.mode], record.text, numbers)


# What does an operator mean who names a provider, a pool, a label, a host or a launcher?


class Subject(NamedTuple):
    """:param kind: a key of `nodepool.model.status.MODES`."""

    kind: str
    name: str


class UnclearSubject(LookupError):
    """Nothing has this name, or several things have. The text says what there is.

    :param unknown: is there nothing of this name?
    """

    def __init__(self, text: str, *, unknown: bool) -> None:
        super().__init__(text)
        self.unknown = unknown


def find(name: str, kinds: Sequence[str], known: Mapping[str, Collection[str]], done: str = "") -> Subject:
    """The subject that a name means.

    A pool may be named without its provider, a launcher by its short host name, and a host in each way in which it is
    known.

    :param kinds: that come into question.
    :param known: names by kind.
    :param done: what all of these are, e.g. ``quarantined``; empty = nothing special.
    :raises UnclearSubject: none or several are meant.
    """
    exact = [Subject(kind, name) for kind in kinds if name in known.get(kind, ())]
    found = exact or sorted({Subject(kind, full) for kind in kinds for full in _matches(kind, name, known)})
    if len(found) == 1:
        return found[0]
    if found:
        text = ", ".join(f"{subject.kind} {subject.name}" for subject in found)
        raise UnclearSubject(f"{name!r} may be {text}: say which", unknown=False)
    raise UnclearSubject(_unknown(name, kinds, known, done), unknown=True)


def _matches(kind: str, name: str, known: Mapping[str, Collection[str]]) -> Iterable[str]:
    for full in known.get(kind, ()):
        short = full.rpartition("/")[2] if kind == "pool" else full.partition(".")[0] if kind == "launcher" else full
        if short == name:
            yield full


def _unknown(name: str, kinds: Sequence[str], known: Mapping[str, Collection[str]], done: str) -> str:
    what = " or ".join(filter(None, (", ".join(kinds[:-1]), kinds[-1])))
    there = sorted({full for kind in kinds for full in known.get(kind, ())})
    if not there:
        return f"no {what} is {done}" if done else f"no {what} is known: does any launcher run?"
    listed = "; ".join(
        f"{kind}s: {', '.join(sorted(known[kind])[:10])}{' ...' if len(known[kind]) > 10 else ''}"
        for kind in kinds
        if known.get(kind)
    )
    missing = f"no {what} {name!r} is {done}" if done else f"there is no {what} {name!r}"
    return f"{missing}{did_you_mean(name, there)} ({listed})"
