# SPDX-License-Identifier: Apache-2.0
"""How many calls of a minute Google takes, by groups of methods.

https://cloud.google.com/compute/docs/api-rate-limits: what is over is refused until the next minute begins.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

from simulators.base.messages import ApiError
from simulators.gce.errors import RATE
from simulators.gce.links import PROJECT_NUMBER

MINUTE_SECONDS: Final = 60
#: Group -> calls a minute of a region, and of the methods that belong to no region.
GROUPS: Final = {
    "Queries": 1500,
    "Read requests": 1500,
    "List requests": 1500,
    "Operation read requests": 1500,
    "Heavy-weight read requests": 750,
}
_TEXT: Final = (
    "Quota exceeded for quota metric '{group}' and limit '{group} per minute' of service 'compute.googleapis.com' for "
    "consumer 'project_number:{number}'."
)


def group_of(method: str) -> str:
    """The group of a method, such as ``instances.insert``."""
    collection, _, name = method.rpartition(".")
    if name in ("aggregatedList", "getSerialPortOutput"):
        return "Heavy-weight read requests"
    if name.startswith("list"):
        return "List requests"
    if collection.endswith("Operations"):
        return "Operation read requests"
    return "Read requests" if name.startswith("get") else "Queries"


class CallLimits:
    """Counts the calls of each minute.

    :param clock: seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._minute = -1
        self._counts: Counter[tuple[str, str]] = Counter()

    def take(self, method: str, region: str) -> None:
        """Counts a call.

        :param region: "" = the method belongs to none.
        :raises ApiError: 403, there were too many.
        """
        minute = int(self._clock() // MINUTE_SECONDS)
        if minute != self._minute:
            self._minute = minute
            self._counts.clear()
        group = group_of(method)
        self._counts[group, region] += 1
        if self._counts[group, region] > GROUPS[group]:
            raise ApiError(403, _TEXT.format(group=group, number=PROJECT_NUMBER), RATE)
