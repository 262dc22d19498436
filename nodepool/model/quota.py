# SPDX-License-Identifier: Apache-2.0
"""Quota arithmetic (reference/driver 12)."""

from __future__ import annotations

import copy
import math
from typing import Any, NamedTuple, Self

from nodepool.model.record import is_finite


class QuotaInformation:
    """Amounts of named resources: a limit, a use, or a need.

    ``quota['compute']`` maps a resource name to an amount. ``cores``, ``instances`` and ``ram`` (MiB) are
    always there; further names (``volumes``, ``volume-gb``, quota codes of a cloud) come as keywords.

    :param default: amount of every resource that is not named: 0 for a use, ``math.inf`` for a limit.
    """

    def __init__(
        self,
        cores: float | None = None,
        instances: float | None = None,
        ram: float | None = None,
        default: float = 0,
        **kw: float | None,
    ) -> None:
        named: dict[str, float | None] = {"cores": cores, "instances": instances, "ram": ram, **kw}
        self.default = default
        self.quota: dict[str, dict[str, float]] = {
            "compute": {name: default if value is None else value for name, value in named.items()}
        }

    @classmethod
    def from_resources(cls, resources: dict[str, Any]) -> Self:
        """A use, from the flat object stored in a node's ``resources``; what is no finite number is skipped."""
        info = cls(default=0)
        for name, value in resources.items():
            if isinstance(value, (int, float)) and not isinstance(value, bool) and is_finite(value):
                info.quota["compute"][name] = value
        return info

    def get_resources(self) -> dict[str, float]:
        """The flat object for a node's ``resources``. Amounts without a bound are left out: JSON has none."""
        return {name: value for name, value in self.quota["compute"].items() if math.isfinite(value)}

    def copy(self) -> Self:
        # Made several times for each node: deepcopy would take longer than all the rest of the arithmetic.
        twin = copy.copy(self)
        twin.quota = {kind: dict(amounts) for kind, amounts in self.quota.items()}
        return twin

    def _combine(self, other: QuotaInformation, sign: int) -> None:
        mine, theirs = self.quota["compute"], other.quota["compute"]
        for name in mine.keys() | theirs.keys():
            left = mine.get(name, self.default)
            right = theirs.get(name, other.default)
            # inf - inf has no value; an unlimited resource stays unlimited.
            mine[name] = left if math.isinf(left) else left + sign * right

    def add(self, other: QuotaInformation) -> None:
        """Add element-wise, in place; a name missing on one side counts as that side's default."""
        self._combine(other, 1)

    def subtract(self, other: QuotaInformation) -> None:
        """Subtract element-wise, in place; a name missing on one side counts as that side's default."""
        self._combine(other, -1)

    def non_negative(self) -> bool:
        """Is no element below 0?"""
        return all(value >= 0 for value in self.quota["compute"].values())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, QuotaInformation) and self.quota == other.quota

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"QuotaInformation({self.quota['compute']})"


class Shortage(NamedTuple):
    """The resource that is missing, of which there is ``limit``; ``used`` now, and ``needed`` more."""

    resource: str
    limit: float
    used: float
    needed: float


def first_shortage(limits: QuotaInformation, used: QuotaInformation, needed: QuotaInformation) -> Shortage | None:
    """The first resource, by name, of which too little is left; None = all that is needed is there."""
    allowed, now, more = limits.quota["compute"], used.quota["compute"], needed.quota["compute"]
    for name in sorted(allowed.keys() | now.keys() | more.keys()):
        limit = allowed.get(name, limits.default)
        taken, wanted = now.get(name, used.default), more.get(name, needed.default)
        if math.isfinite(limit) and limit - taken - wanted < 0:
            return Shortage(name, limit, taken, wanted)
    return None
