# SPDX-License-Identifier: Apache-2.0
"""One run: a world, a load, a schedule of faults, and what came of it."""

from __future__ import annotations

import statistics
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.chaos.cloud_worlds import AwsWorld, AzureWorld, GceWorld, IbmVpcWorld
from tests.chaos.deadline import Deadline
from tests.chaos.events import Violations
from tests.chaos.faults import Injector
from tests.chaos.invariants import Aftermath, Watcher
from tests.chaos.kubernetes_world import KubernetesWorld
from tests.chaos.load import Load
from tests.chaos.schedule import Fault
from tests.chaos.usage import Usage
from tests.chaos.world import Limits, World

#: After the end of all faults nothing may be left, and after the end of the last job.
RECOVERY_SECONDS, END_SECONDS = 60.0, 15.0
#: The same after the jobs that show that all serve.
SERVED_SECONDS = 20.0
#: So many of the requests that waited longest are told.
SLOWEST = 15
#: What the launchers launch from.
WORLDS: Final[Mapping[str, type[World]]] = {
    "openstack": World,
    "aws": AwsWorld,
    "azure": AzureWorld,
    "gce": GceWorld,
    "ibmvpc": IbmVpcWorld,
    "kubernetes": KubernetesWorld,
}


@dataclass(frozen=True)
class Settings:
    """What a run is made of; the same settings make the same faults at the same times.

    :param patience: how many seconds longer to look how long what is left stays.
    :param cloud: one of `WORLDS`.
    :param arrivals: when a request is submitted; empty = so many ``jobs`` at once, one after the other.
    """

    seed: int
    faults: list[Fault]
    launchers: int = 3
    jobs: int = 20
    limits: Limits = field(default_factory=Limits)
    zookeepers: int = 1
    patience: float = 0.0
    arrivals: Sequence[float] = ()
    cloud: str = "openstack"


def run(settings: Settings, directory: Path) -> dict[str, Any]:
    """Blocks until it is over and returns the report; ``violations`` is empty when all is well.

    :param directory: for logs and data; new.
    """
    make_world = WORLDS[settings.cloud]
    world = make_world(directory, settings.seed, settings.launchers, settings.limits, settings.zookeepers)
    violations = Violations(world)
    try:
        world.start()
        load = Load(world, settings.seed, settings.jobs, violations.add, settings.arrivals)
        watcher = Watcher(world, load, violations)
        aftermath = Aftermath(world, load, violations)
        try:
            load.connect()
            # One node of each kind, undisturbed: that is the level to come back to.
            aftermath.check_serving()
            before = [launcher.usage() for launcher in world.launchers]
            world.begin()
            load.start()
            watcher.start()
            Injector(world, load, watcher, violations, settings.seed).run(settings.faults)
            figures = _finish(world, load, aftermath, before, settings.patience)
        finally:
            watcher.stop()
            load.close()
        watcher.look_at_counters()
        state = world.cloud.state()
    finally:
        world.stop()
    writes: dict[str, int] = {}
    if world.ours:
        aftermath.check_failures(watcher.registrations)
        aftermath.check_logs()
        writes = aftermath.check_writes()
    peaks = {
        "servers": state["peak_servers"],
        "servers of providers": state["peak_by_provider"],
        "cores": state["peak_cores"],
        "ram": state["peak_ram"],
        "tenant": watcher.peak_tenant,
        "orphaned by hand": watcher.orphaned,
    }
    return {
        "seed": settings.seed,
        "violations": violations.found,
        "figures": {**figures, "peaks": peaks, "writes of launchers": writes, "cloud": state["events"]},
        "zookeepers": settings.zookeepers,
        "in": settings.cloud,
        "kinds": dict(Counter(fault.kind for fault in settings.faults)),
        "faults": [fault.as_json() for fault in settings.faults],
        "events": world.events,
    }


def _finish(world: World, load: Load, aftermath: Aftermath, before: Sequence[Usage], patience: float) -> dict[str, Any]:
    """The faults are over: does everything come back to order?"""
    world.note("all faults are over")
    deadline = Deadline(RECOVERY_SECONDS)
    threading.Event().wait(2.0)
    load.finish()
    if forgotten := load.forget():
        world.note(f"client: {forgotten} requests were deleted that nobody waited for")
    idle = deadline.elapsed
    deadline.passed()
    # What the last jobs gave back was not left by a fault.
    deadline.at_least(END_SECONDS)
    left = aftermath.check_clean(deadline)
    stays = aftermath.wait_clean(Deadline(patience)) if left else {}
    clean = None if stays else round(deadline.elapsed, 1)
    world.note(f"clean: {clean}")
    aftermath.check_serving()
    aftermath.check_clean(Deadline(SERVED_SECONDS))
    after = aftermath.check_usage(before)
    slowest = [f"{waited:.1f} s: {who}" for waited, who in sorted(load.waits, reverse=True)[:SLOWEST]]
    waits = sorted(waited for waited, _ in load.waits)
    return {
        "jobs": dict(load.results),
        "wait p50": round(statistics.median(waits), 2) if waits else None,
        "wait p99": round(waits[int(len(waits) * 0.99)], 2) if waits else None,
        "wait max": round(waits[-1], 2) if waits else None,
        "slowest": slowest,
        "seconds without ZooKeeper": round(load.served.seconds_without, 1),
        "launchers before": before,
        "launchers after": after,
        "seconds until the jobs were done": round(idle, 1),
        "seconds until all was clean": clean,
        "of these without CPU time to spare": round(deadline.starved, 1),
        "left in time": {what: which if isinstance(which, int | str) else len(which) for what, which in left.items()},
    }
