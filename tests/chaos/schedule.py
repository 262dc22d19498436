# SPDX-License-Identifier: Apache-2.0
"""Which fault comes when. Pure: the same seed gives the same schedule."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
    :param group: kinds that are drawn together; see `make_schedule`.
    """

    weight: float
    seconds: tuple[float, float]
    target: str
    amount: tuple[float, float] = (0.0, 0.0)
    group: str = "base"


LAUNCHER: Final = "launcher"
#: The ways of one launcher to ZooKeeper and to the cloud.
LINK: Final = "link"
CLOUD_LINK: Final = "cloud-link"
#: The time that its machine believes it is.
CLOCK: Final = "clock"
#: What each builder has on its disk, and uploads to and deletions in one of several clouds.
DISK: Final = "disk"
UPLOADS: Final = "uploads-to"
IMAGE_DELETES: Final = "image-deletions-in"
#: Targets of which each launcher or builder has one of its own, or each cloud. All others exist once.
OF_LAUNCHERS: Final = (LAUNCHER, LINK, CLOUD_LINK, CLOCK, DISK, UPLOADS, IMAGE_DELETES)
OF_CLOUDS: Final = (UPLOADS, IMAGE_DELETES)
ENSEMBLE: Final = "ensemble"
#: Only in runs with builders, `tests.chaos.images`.
IMAGES: Final = "images"
#: Groups of kinds, and how much rarer they are than those of the first one.
GROUPS: Final[Mapping[str, float]] = {"base": 1.0, "links": 4.0, ENSEMBLE: 6.0, "hosts": 5.0, "parts": 6.0, IMAGES: 1.0}

#: Every kind by its name.
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
    # The network of one launcher. The amount of a slow link is the greatest delay in seconds, each way.
    "link-cut": Kind(3, (3.0, 9.0), LINK, group="links"),
    "link-slow": Kind(2, (4.0, 12.0), LINK, (0.05, 0.5), "links"),
    "cloud-link-cut": Kind(2, (3.0, 12.0), CLOUD_LINK, group="links"),
    "cloud-link-slow": Kind(1, (4.0, 12.0), CLOUD_LINK, (0.05, 0.5), "links"),
    # The machines of launchers. In a rolling restart each launcher is away for so long; the sign of the amount of a
    # clock says which way it is wrong.
    "rolling-restart": Kind(1, (0.0, 1.0), "launchers", group="hosts"),
    "clock": Kind(2, (4.0, 15.0), CLOCK, (-1.0, 1.0), "hosts"),
    "full-disk": Kind(2, (3.0, 8.0), LAUNCHER, group="hosts"),
    # No server and no static host can be reached over SSH.
    "ssh-down": Kind(1, (1.0, 6.0), "ssh", group="hosts"),
    "leaked-volumes": Kind(1, (3.0, 8.0), "cloud-volumes", (0.3, 1.0), "hosts"),
    # While a request over several pools has a part in some state.
    "kill-with-parts": Kind(1, (0.0, 4.0), LAUNCHER, group="parts"),
    # Several ZooKeeper servers.
    "leader-kill": Kind(2, (1.0, 6.0), "zookeeper", group=ENSEMBLE),
    "quorum-loss": Kind(1, (1.0, 6.0), "zookeeper", group=ENSEMBLE),
    "server-cut": Kind(1, (3.0, 8.0), "zookeeper", group=ENSEMBLE),
    # Builders. Those without "-in-..." are the launchers' ones.
    "kill-in-build": Kind(3, (0.0, 6.0), LAUNCHER, group=IMAGES),
    "kill-in-upload": Kind(3, (0.0, 6.0), LAUNCHER, group=IMAGES),
    "freeze-in-build": Kind(1, (5.5, 9.0), LAUNCHER, group=IMAGES),
    "freeze-in-upload": Kind(2, (5.5, 9.0), LAUNCHER, group=IMAGES),
    "failing-builds": Kind(1, (4.0, 10.0), "dib", (0.2, 0.8), IMAGES),
    "hanging-builds": Kind(1, (3.0, 6.0), "dib", (0.2, 0.5), IMAGES),
    # Uploads and deletions in one of the clouds; the amount is the share of them.
    "failing-uploads": Kind(2, (4.0, 10.0), UPLOADS, (0.3, 1.0), IMAGES),
    "broken-uploads": Kind(2, (4.0, 10.0), UPLOADS, (0.3, 1.0), IMAGES),
    "corrupted-uploads": Kind(2, (4.0, 10.0), UPLOADS, (0.3, 1.0), IMAGES),
    "truncated-uploads": Kind(1, (4.0, 10.0), UPLOADS, (0.3, 1.0), IMAGES),
    "slow-uploads": Kind(1, (4.0, 10.0), UPLOADS, (0.3, 1.0), IMAGES),
    "failing-image-deletions": Kind(2, (4.0, 12.0), IMAGE_DELETES, (0.3, 1.0), IMAGES),
    # What lies on a builder's disk.
    "image-disk-full": Kind(2, (3.0, 8.0), DISK, group=IMAGES),
    "image-files-deleted": Kind(1, (0.0, 0.0), DISK, group=IMAGES),
    # Hands in ZooKeeper.
    "build-corrupted": Kind(1, (0.0, 0.0), "image-znodes", group=IMAGES),
    "build-record-deleted": Kind(1, (0.0, 0.0), "image-znodes", group=IMAGES),
    "upload-corrupted": Kind(1, (0.0, 0.0), "image-znodes", group=IMAGES),
    "upload-record-deleted": Kind(1, (0.0, 0.0), "image-znodes", group=IMAGES),
    # No faults: what operators do.
    "build-requested": Kind(4, (0.0, 0.0), "image-requests", group=IMAGES),
    "build-unwanted": Kind(1, (0.0, 0.0), "image-requests", group=IMAGES),
    "upload-unwanted": Kind(1, (0.0, 0.0), "image-requests", group=IMAGES),
    "image-removed": Kind(1, (2.0, 8.0), "image-config", group=IMAGES),
}
#: What a run of launchers has, and one of builders.
OF_LAUNCHER_RUNS: Final = tuple(name for name, kind in KINDS.items() if kind.group != IMAGES)
OF_IMAGE_RUNS: Final = (
    "kill",
    "freeze",
    "terminate",
    "zookeeper-kill",
    "cloud-away",
    "cloud-frozen",
    "cloud-errors",
    "cloud-drops",
    "link-cut",
    "link-slow",
    "cloud-link-cut",
    *(name for name, kind in KINDS.items() if kind.group == IMAGES),
)


@dataclass(frozen=True)
class Fault:
    """One fault.

    :param at: seconds after the start of the run, ``seconds``: how long it lasts (0 = a moment).
    :param launcher: number of the launcher, builder or cloud that it hits; None: it hits something else.
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
    def whose(self) -> str:
        """Of what `launcher` is the number."""
        return "cloud" if KINDS[self.kind].target in OF_CLOUDS else "process"

    @property
    def end(self) -> float:
        return self.at + self.seconds

    def as_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def make_schedule(
    seed: int,
    seconds: float,
    launchers: int,
    kinds: Iterable[str] = (),
    every_seconds: float = 1.5,
    zookeepers: int = 1,
    run: Sequence[str] = OF_LAUNCHER_RUNS,
) -> list[Fault]:
    """The faults of a run, ordered by time; all have ended after ``seconds``.

    Each group of kinds is drawn by itself, from numbers of its own, one group after the other; a fault whose target is
    busy with one that is there already is left out. So a new group, or the one that needs several ZooKeeper servers,
    only adds faults: those of the groups before stay what they are with this seed.

    :param kinds: only these, all groups at the same rate; empty = all.
    :param every_seconds: mean time from one fault to the next in the first group.
    :param zookeepers: how many ZooKeeper servers there are; with one, no fault is drawn that needs several.
    :param run: all kinds that there may be.
    :raises ValueError: there is no such kind.
    """
    chosen = list(kinds)
    names = _known(chosen, run)
    faults: list[Fault] = []
    for group, rarer in GROUPS.items():
        own = [name for name in names if KINDS[name].group == group]
        if own and (group != ENSEMBLE or zookeepers > 1):
            random = Random(f"chaos {seed}" if group == "base" else f"chaos {group} {seed}")
            mean = every_seconds if chosen else every_seconds * rarer
            for fault in _draw(random, own, seconds, launchers, mean):
                if not any(_collide(fault, other) for other in faults):
                    faults.append(fault)
    return sorted(faults, key=lambda fault: fault.at)


def make_arrivals(seed: int, requests: int, seconds: float) -> list[float]:
    """When each of so many requests comes, in seconds from the start of the run, all before ``seconds``. Pure."""
    random = Random(f"arrivals {seed}")
    return sorted(round(random.uniform(0.0, seconds), 2) for _ in range(requests))


def _draw(random: Random, names: Sequence[str], seconds: float, launchers: int, mean_seconds: float) -> Iterator[Fault]:
    weights = [KINDS[name].weight for name in names]
    at = 1.0
    while (at := round(at + random.expovariate(1 / mean_seconds), 2)) < seconds:
        # All is drawn before anything is decided: one fault that is left out does not change the others.
        name = random.choices(names, weights)[0]
        number = random.randrange(launchers)
        kind = KINDS[name]
        fault = Fault(
            at,
            name,
            round(random.uniform(*kind.seconds), 2),
            number if kind.target in OF_LAUNCHERS else None,
            round(random.uniform(*kind.amount), 2),
        )
        if fault.end <= seconds:
            yield fault


def _collide(one: Fault, other: Fault) -> bool:
    pause = 0.1
    return one.target == other.target and one.at < other.end + pause and other.at < one.end + pause


def from_json(faults: Iterable[Mapping[str, Any]]) -> list[Fault]:
    """A schedule that was written by `Fault.as_json`, for a replay of some of its faults.

    :raises ValueError: there is no such kind.
    """
    found = [Fault(**fault) for fault in faults]
    _known(fault.kind for fault in found)
    return sorted(found, key=lambda fault: fault.at)


def _known(kinds: Iterable[str], run: Iterable[str] = KINDS) -> Sequence[str]:
    names, there_are = list(kinds), list(run)
    if unknown := sorted(set(names) - set(there_are)):
        raise ValueError(f"unknown kinds of faults: {', '.join(unknown)}; there are: {', '.join(there_are)}")
    return names or there_are
