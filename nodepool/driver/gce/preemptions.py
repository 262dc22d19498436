# SPDX-License-Identifier: Apache-2.0
"""`Preemptions`: tells of each spot instance of a provider that Google took away, once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final, Protocol

from nodepool.clock import monotonic
from nodepool.driver.framework.cloud_texts import one_line
from nodepool.driver.framework.repeats import Repeats
from nodepool.driver.gce.types import PREEMPTED
from nodepool.exceptions import LaunchError
from nodepool.metrics import instances

if TYPE_CHECKING:
    from nodepool.driver.gce.types import Operation

log = logging.getLogger("nodepool.driver.gce.preemptions")

#: The newest operations are looked at, so many.
LOOKED_AT: Final = 500


class PreemptionCalls(Protocol):
    """What is used of `nodepool.driver.gce.client.ComputeEngine`."""

    def operations(self, kind: str, what: str) -> Iterable[Operation]: ...


class Preemptions:
    """Called by one thread at a time.

    What the first list shows happened before: it is not told.

    :param provider: its name.
    """

    def __init__(self, provider: str, calls: PreemptionCalls, clock: Callable[[], float] = monotonic) -> None:
        self._provider = provider
        self._calls = calls
        self._told: set[str] | None = None
        self._repeats = Repeats(clock=clock)

    def look(self, nodes: Mapping[tuple[str, str], str]) -> None:
        """Ask, and tell of what is new. Blocks for a call.

        :param nodes: nodes of instances that were there lately, by zone and name.
        """
        found: dict[str, Operation] = {}
        try:
            for operation in self._calls.operations(PREEMPTED, "listing preemptions"):
                found[operation.name] = operation
                if len(found) >= LOOKED_AT or (self._told is not None and operation.name in self._told):
                    break
        except LaunchError as error:
            if self._repeats.worth_saying("list"):
                log.warning("Provider %s: preemptions are not known: %s", self._provider, error)
            return
        self._repeats.over("list")
        new = [] if self._told is None else [found[name] for name in found if name not in self._told]
        self._told = set(found) | (self._told or set() if len(self._told or ()) < 10 * LOOKED_AT else set())
        for operation in new:
            node_id = nodes.get((operation.zone, operation.target))
            if node_id is not None:
                instances.report_end(self._provider, PREEMPTED)
                said = one_line(str(operation.data.get("statusMessage") or "Instance was preempted."))
                log.warning(
                    "Instance %s (spot) of node %s was preempted by Google: %s", operation.target, node_id, said
                )
