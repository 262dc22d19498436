# SPDX-License-Identifier: Apache-2.0
"""Which fault comes when. Pure: the same seed gives the same schedule."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final


@dataclass(frozen=True)
class Kind:
    """A kind of fault.

    :param weight: how often it is drawn, relative to the others.
    :param seconds: shortest and longest duration.
    :param target: what it is done to; two faults never hit the same target at the same time.
    :param amount: least and greatest value of the fault's parameter, whose meaning `tests.chaos.faults` knows.
    """

    weight: float
    seconds: tuple[float, float]
    target: str
    amount: tuple[float, float] = (0.0, 0.0)


LAUNCHER: Final = "launcher"

#: Every kind by its name. Targets other than `LAUNCHER` exist once.
KINDS: Final[Mapping[str, Kind]] = {
    # Launchers. A kill lasts until the restart.
    "kill": Kind(3, (0.0, 6.0), LAUNCHER),
    "kill-in-launch": Kind(4, (0.0, 6.0), LAUNCHER),
    "freeze": Kind(3, (5.5, 9.0), LAUNCHER),
    "freeze-in-launch": Kind(2, (5.5, 9.0), LAUNCHER),
    "terminate": Kind(1, (0.0, 2.0), LAUNCHER),
    "reload": Kind(1, (0.0, 0.0), LAUNCHER),
    # ZooKeeper.
    "zookeeper-kill": Kind(1, (0.0, 3.0), "zookeeper"),
    # The cloud's API.
    "cloud-away": Kind(1, (4.0, 12.0), "cloud-api"),
    "cloud-frozen": Kind(1, (2.0, 8.0), "cloud-api"),
    "cloud-errors": Kind(2, (4.0, 10.0), "cloud-api", (0.1, 0.5)),
    "cloud-drops": Kind(1, (4.0, 10.0), "cloud-api", (0.1, 0.3)),
    "cloud-busy": Kind(1, (3.0, 8.0), "cloud-api", (0.5, 1.0)),
    "lost-creates": Kind(3, (4.0, 10.0), "cloud-creates", (0.2, 0.8)),
    # What the cloud makes of it.
    "error-servers": Kind(1, (3.0, 8.0), "cloud-boots", (0.1, 0.5)),
    "stuck-builds": Kind(1, (3.0, 6.0), "cloud-boots", (0.1, 0.3)),
    "swallowed-deletes": Kind(2, (3.0, 10.0), "cloud-deletes", (0.2, 0.6)),
    "hidden-servers": Kind(2, (4.0, 12.0), "cloud-lists", (0.2, 0.8)),
    "leaked-ports": Kind(1, (3.0, 8.0), "cloud-ports", (0.1, 0.5)),
    "quota-change": Kind(1, (4.0, 10.0), "cloud-quota", (0.4, 0.9)),
    "server-vanishes": Kind(1, (0.0, 0.0), "cloud-servers"),
    # Hands in ZooKeeper.
    "node-deleted": Kind(1, (0.0, 0.0), "znodes"),
    "node-corrupted": Kind(1, (0.0, 0.0), "znodes"),
    "node-emptied": Kind(1, (0.0, 0.0), "znodes"),
    # The other side.
    "client-kill": Kind(1, (3.0, 6.0), "client"),
}


@dataclass(frozen=True)
class Fault:
    """One fault.

    :param at: seconds after the start of the run, ``seconds``: how long it lasts (0 = a moment).
    :param launcher: number of the launcher that it hits; None: it hits something else.
    :param amount: for example the share of calls that fail.
    """

    at: float
    kind: str
    seconds: float = 0.0
    launcher: int | None = None
    amount: float = 0.0

    @property
    def target(self) -> str:
        target = KINDS[self.kind].target
        return target if self.launcher is None else f"{target}-{self.launcher}"

    @property
    def end(self) -> float:
        return self.at + self.seconds

    def as_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def make_schedule(
    seed: int, seconds: float, launchers: int, kinds: Iterable[str] = (), every_seconds: float = 1.5
) -> list[Fault]:
    """The faults of a run, ordered by time; all have ended after ``seconds``.

    :param kinds: only these; empty = all.
    :param every_seconds: mean time from one fault to the next.
    :raises ValueError: there is no such kind.
    """
    names = _known(kinds)
    weights = [KINDS[name].weight for name in names]
    random = Random(f"chaos {seed}")
    busy_until: dict[str, float] = {}
    faults: list[Fault] = []
    at = 1.0
    while (at := round(at + random.expovariate(1 / every_seconds), 2)) < seconds:
        # All is drawn before anything is decided: one fault that is left out does not change the others.
        name = random.choices(names, weights)[0]
        number = random.randrange(launchers)
        kind = KINDS[name]
        fault = Fault(
            at,
            name,
            round(random.uniform(*kind.seconds), 2),
            number if kind.target == LAUNCHER else None,
            round(random.uniform(*kind.amount), 2),
        )
        if fault.end > seconds or at < busy_until.get(fault.target, 0.0):
            continue
        busy_until[fault.target] = fault.end + 0.1
        faults.append(fault)
    return faults


def from_json(faults: Iterable[Mapping[str, Any]]) -> list[Fault]:
    """A schedule that was written by `Fault.as_json`, for a replay of some of its faults.

    :raises ValueError: there is no such kind.
    """
    found = [Fault(**fault) for fault in faults]
    _known(fault.kind for fault in found)
    return sorted(found, key=lambda fault: fault.at)


def _known(kinds: Iterable[str]) -> Sequence[str]:
    names = list(kinds)
    if unknown := sorted(set(names) - set(KINDS)):
        raise ValueError(f"unknown kinds of faults: {', '.join(unknown)}; there are: {', '.join(KINDS)}")
    return names or list(KINDS)
