# SPDX-License-Identifier: Apache-2.0
"""`Preemptions`: which spot instances Google took away, in its words."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final, Protocol

from nodepool.clock import monotonic
from nodepool.driver.framework.cloud_texts import one_line
from nodepool.driver.framework.repeats import Repeats
from nodepool.driver.gce.types import PREEMPTED
from nodepool.exceptions import LaunchError

if TYPE_CHECKING:
    from nodepool.driver.gce.types import Operation

log = logging.getLogger("nodepool.driver.gce.preemptions")

#: So many of a zone are remembered, and looked at in one list: the newest.
MOST: Final = 500


class PreemptionCalls(Protocol):
    """What is used of `nodepool.driver.gce.client.ComputeEngine`."""

    def operations(self, zone: str, kind: str, what: str) -> Iterable[Operation]: ...


class Preemptions:
    """Of one provider. `look` is called by one thread at a time, `why` by any.

    :param provider: its name.
    :param zones: of it.
    """

    def __init__(
        self, provider: str, zones: Iterable[str], calls: PreemptionCalls, clock: Callable[[], float] = monotonic
    ) -> None:
        self._provider = provider
        self._calls = calls
        self._repeats = Repeats(clock=clock)
        #: By zone and by name of the operation, the oldest first. What a zone has is replaced as a whole.
        self._found: dict[str, Mapping[str, Operation]] = {zone: {} for zone in zones}

    def look(self) -> None:
        """Ask for what is new. Blocks for a call for each zone; trouble is logged."""
        for zone in self._found:
            try:
                self._look_at(zone)
            except LaunchError as error:
                if self._repeats.worth_saying(zone):
                    log.warning("Provider %s: preemptions in %s are not known: %s", self._provider, zone, error)
            else:
                self._repeats.over(zone)

    def _look_at(self, zone: str) -> None:
        before = self._found[zone]
        new: list[Operation] = []
        for operation in self._calls.operations(zone, PREEMPTED, "listing preemptions"):
            # The newest come first.
            if operation.name in before or len(new) >= MOST:
                break
            new.append(operation)
        found = {**before, **{operation.name: operation for operation in reversed(new)}}
        self._found[zone] = dict(list(found.items())[-MOST:])

    def why(self, zone: str, instance: str) -> str | None:
        """What Google says of an instance that it took away; None = it did not. Does not block."""
        for operation in reversed(list(self._found.get(zone, {}).values())):
            if operation.target == instance:
                said = operation.data.get("statusMessage") or "Instance was preempted."
                return one_line(str(said))
        return None
