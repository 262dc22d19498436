# SPDX-License-Identifier: Apache-2.0
"""What can be set in the simulated project while it runs: times, lag, faults, capacity, quotas.

Every field has the same name in JSON (admin endpoint) and in Python. Times are in seconds; a range is
``[least, most]``, drawn evenly from the simulator's seeded generator.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, ClassVar

from simulators.base.rules import ErrorRule, Range, Rule, check_kind
from simulators.base.settings import SimulatorSettings

__all__ = ["GceBootRule", "GceDeleteRule", "GceErrorRule", "GceSettings", "ZoneCapacity"]

#: Kinds of `GceBootRule`.
FAILED, STUCK, PREEMPTED, TERMINATED = "failed", "stuck", "preempted", "terminated"
#: Kinds of `GceDeleteRule`; the last one is "stuck", too.
DELETE_FAILED = "failed"
GIB = 1024**3


@dataclass
class GceErrorRule(ErrorRule):
    """An API call that goes wrong.

    :param operation: shell pattern of Google's names of methods, for example ``instances.insert``, ``*.list``.
    :param reason: of Google, of errors whose kind is a status; "" for a usual one of the status.
    """

    reason: str = ""


@dataclass
class ZoneCapacity:
    """How much room there is for some instances; the first rule that matches counts.

    :param machine_type: shell pattern; ``zone``: shell pattern; ``spot``: None = both.
    :param room: how many of them may live at once; the operations of more end with ZONE_RESOURCE_POOL_EXHAUSTED.
    :param details: the code is ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS.
    :param late: False: the call itself is refused, as 503.
    """

    machine_type: str = "*"
    zone: str = "*"
    spot: bool | None = None
    room: int = 0
    details: bool = False
    late: bool = True

    def matches(self, machine_type: str, zone: str, spot: bool) -> bool:
        fits = fnmatchcase(machine_type, self.machine_type) and fnmatchcase(zone, self.zone)
        return fits and self.spot in (None, spot)


@dataclass
class GceBootRule(Rule):
    """An instance that does not become usable, or not for long.

    :param kind: ``failed`` (the operation ends with ``code`` and ``message`` when the boot time is over, and there is
        no instance), ``stuck`` (stays in PROVISIONING), ``preempted`` (it runs, and Google takes it away after
        ``seconds``) or ``terminated`` (it runs, and is TERMINATED after ``seconds``).
    :param machine_type: shell pattern.
    """

    kind: str = FAILED
    code: str = "INTERNAL_ERROR"
    message: str = "Internal error. Please try again or contact Google Support."
    status: int = 500
    machine_type: str = "*"
    seconds: float = 1.0

    def __post_init__(self) -> None:
        check_kind(self.kind, (FAILED, STUCK, PREEMPTED, TERMINATED))


@dataclass
class GceDeleteRule(Rule):
    """A deletion of an instance that was accepted, and does not happen.

    :param kind: ``failed`` (the operation ends with an error, the instance runs) or ``stuck`` (stays in STOPPING until
        it is released).
    """

    kind: str = DELETE_FAILED

    def __post_init__(self) -> None:
        check_kind(self.kind, (DELETE_FAILED, STUCK))


@dataclass
class GceSettings(SimulatorSettings):
    """All settings with their defaults: a quick project without faults, whose limits nobody reaches.

    :param boot_seconds: from the accepted insert to RUNNING; ``delete_seconds``: from STOPPING to gone.
    :param hidden_seconds: how long a new instance is missing in lists; applies to ``hidden_rate`` of them.
    :param ghost_seconds: how long a deleted instance is still in lists, as STOPPING; applies to ``ghost_rate`` of them.
    :param leak_rate: share of instances whose boot disk stays when they are deleted.
    :param page_limit: most entries of one page, whatever maxResults says; Google's own limit is 500.
    :param empty_pages: a list begins with a page that has no entries, and names a next one.
    :param unreachable: zones that do not answer: lists of several zones name them in ``unreachables`` if the client
        takes a part (``returnPartialSuccess``), and fail otherwise.
    :param unreachable_warnings: such lists tell it by a warning of the zone, UNREACHABLE, instead.
    :param unreachable_seconds: all calls of such zones get no answer, and their connections end after so long; None =
        only lists fail.
    :param throttles: whether the calls of a minute are limited as Google documents it (`call_groups`).
    :param concurrent_operations: most inserts at once in a region; None = no limit. More end with
        CONCURRENT_OPERATIONS_QUOTA_EXCEEDED, or without ``late_quotas`` are refused as 403 rateLimitExceeded.
    :param capacity: see `ZoneCapacity`; where none matches there is room.
    :param quotas: limit of each region by metric; ``project_quotas``: of the project. They are enforced.
    :param late_quotas: the operation ends with the error; else the call is refused as 403 quotaExceeded.
    :param operation_seconds: how long operations are known.
    :param token_seconds: life of a token.
    :param denied: shell patterns of methods that its roles do not allow, for example ``disks.*``.
    :param image_seconds: how long an image is PENDING.
    :param disk_unit_bytes: the size of an image's disk must be a multiple of it. Google's is 1 GiB.
    :param upload_cut_rate: share of the pieces of an upload of which only a part arrives, and whose connection ends.
    :param upload_short_rate: share of the pieces of which only a part is kept; the answer tells how much.
    """

    RULES: ClassVar[Mapping[str, Any]] = {"errors": GceErrorRule, "boots": GceBootRule, "deletes": GceDeleteRule}

    boot_seconds: Range = (0.05, 0.2)
    delete_seconds: Range = (0.02, 0.1)
    hidden_seconds: Range = (0.5, 1.0)
    hidden_rate: float = 0.0
    ghost_seconds: Range = (0.5, 1.0)
    ghost_rate: float = 0.0
    leak_rate: float = 0.0
    page_limit: int = 500
    empty_pages: bool = False
    unreachable: list[str] = field(default_factory=list)
    unreachable_warnings: bool = False
    unreachable_seconds: float | None = None
    throttles: bool = False
    concurrent_operations: int | None = None
    boots: list[GceBootRule] = field(default_factory=list)
    deletes: list[GceDeleteRule] = field(default_factory=list)
    capacity: list[ZoneCapacity] = field(default_factory=list)
    quotas: dict[str, float] = field(default_factory=dict)
    project_quotas: dict[str, float] = field(default_factory=dict)
    late_quotas: bool = True
    operation_seconds: float = 3600.0
    token_seconds: float = 3599.0
    denied: list[str] = field(default_factory=list)
    image_seconds: Range = (0.02, 0.1)
    disk_unit_bytes: int = GIB
    upload_cut_rate: float = 0.0
    upload_short_rate: float = 0.0

    def _converted(self, name: str, value: Any) -> Any:
        if name == "capacity":
            return [entry if isinstance(entry, ZoneCapacity) else ZoneCapacity(**entry) for entry in value]
        return super()._converted(name, value)
