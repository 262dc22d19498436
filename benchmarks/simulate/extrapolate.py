# SPDX-License-Identifier: Apache-2.0
"""From measured costs to sites that nobody can run here: what each part has to do, which limit comes first. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks.simulate.fleet import Cost

#: Packets, with transactions among them, that one ensemble answers in a second while it also serves others. A single
#: server on two shared cores made 8,800 writes per second (doc/source/explanation/performance.rst).
PACKETS_A_SECOND: Final = 8_000.0
#: Events of watches that one ensemble sends in a second.
EVENTS_A_SECOND: Final = 100_000.0
#: Share of a core that a launcher may take over time: one Python process computes in one thread at a time.
CPU_SHARE: Final = 0.7
#: CPU of real launchers over that of simulated ones, which have no sockets, threads and TLS; of a run with --check.
REAL_CPU: Final = 2.7
#: Memory of a launcher without nodes, and for each node that it knows; MiB and KiB.
BASE_MIB, NODE_KIB = 60.0, 5.0
#: Memory that a launcher may take, MiB.
MEMORY_MIB: Final = 4096.0


@dataclass(frozen=True)
class Line:
    """A cost of one request that grows with the launchers of its ensemble: ``fixed + each * launchers``."""

    fixed: float
    each: float

    def at(self, launchers: float) -> float:
        return self.fixed + self.each * launchers


@dataclass(frozen=True)
class Model:
    """Costs of a request; CPU in seconds. What is not said is of all launchers together."""

    cpu: Line
    packets: Line
    events: Line
    client_packets: float


@dataclass(frozen=True)
class Site:
    """:param rate: requests per second, over all ensembles. ``nodes`` and ``launchers`` are of all of them, too."""

    rate: float
    nodes: int
    launchers: int
    ensembles: int = 1


def line(points: Sequence[tuple[float, float]]) -> Line:
    """The line through points (launchers, cost) with the least squares, not below 0. Raises ValueError: too few."""
    if len({launchers for launchers, _ in points}) < 2:
        raise ValueError("costs with two numbers of launchers are needed")
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / sum((x - mean_x) ** 2 for x, _ in points)
    slope = max(0.0, slope)
    return Line(max(0.0, mean_y - slope * mean_x), slope)


def model(costs: Sequence[Cost], checked: Sequence[Cost] = ()) -> Model:
    """What the costs of runs with several numbers of launchers say. Raises ValueError: too few.

    :param checked: of real launchers, whose CPU is taken; without any that of the simulated ones, times `REAL_CPU`.
    """
    known = [(cost.launchers, cost.cpu) for cost in checked]
    cpu = line(known or [(cost.launchers, cost.cpu * REAL_CPU) for cost in costs])
    packets = line([(cost.launchers, cost.packets) for cost in costs])
    events = line([(cost.launchers, cost.events) for cost in costs])
    return Model(cpu, packets, events, sum(cost.client_packets for cost in costs) / len(costs))


def use(model: Model, site: Site) -> dict[str, float]:
    """How much of each limit is used, 1.0 = all of it. Sites are split evenly: each ensemble has its own launchers."""
    memory = BASE_MIB + site.nodes / site.ensembles * NODE_KIB / 1024
    shares = _shares(model, site.rate / site.ensembles, site.launchers / site.ensembles)
    return {**shares, "memory of a launcher": memory / MEMORY_MIB}


def _shares(model: Model, rate: float, launchers: float) -> dict[str, float]:
    """Of one ensemble, without the memory."""
    return {
        "CPU of a launcher": rate * model.cpu.at(launchers) / launchers / CPU_SHARE,
        "packets of an ensemble": rate * (model.packets.at(launchers) + model.client_packets) / PACKETS_A_SECOND,
        "events of an ensemble": rate * model.events.at(launchers) / EVENTS_A_SECOND,
    }


def first_limit(used: Mapping[str, float]) -> tuple[str, float]:
    """Which limit is used most, and how much of it."""
    return max(used.items(), key=lambda item: item[1])


def ensembles_needed(model: Model, site: Site) -> int | None:
    """The smallest number of ensembles with which nothing is used up; None = there is none with these launchers."""
    for ensembles in range(1, site.launchers + 1):
        if first_limit(use(model, Site(site.rate, site.nodes, site.launchers, ensembles)))[1] <= 1.0:
            return ensembles
    return None


def highest_rate(model: Model, launchers: float) -> float:
    """Requests per second that so many launchers on one ensemble can serve; whatever the nodes are."""
    used = _shares(model, 1.0, launchers).values()
    return math.inf if max(used) == 0 else 1.0 / max(used)
