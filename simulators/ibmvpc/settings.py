# SPDX-License-Identifier: Apache-2.0
"""What can be set in the simulated region while it runs: times, lag, faults, capacity, quotas, throttles.

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

__all__ = ["IbmVpcSettings", "ImageImportRule", "ProfileCapacity", "VpcBootRule", "VpcDeleteRule", "VpcErrorRule"]

#: Kinds of `VpcBootRule`.
FAILED, STUCK, STOPPED = "failed", "stuck", "stopped"
#: Kinds of `VpcDeleteRule`.
SWALLOWED, DELETE_STUCK = "swallowed", "stuck"
#: The code that an instance is stopped with when IBM takes its capacity away.
PREEMPTED = "stopped_by_preemption"


@dataclass
class VpcErrorRule(ErrorRule):
    """An API call that goes wrong.

    :param operation: shell pattern of service and operation, for example ``vpc.create_instance``, ``vpc.list_*``.
    :param code: of IBM, of errors whose kind is a status; "" for a usual one of the status.
    """

    code: str = ""


@dataclass
class ProfileCapacity:
    """How much room there is for some instances; the first rule that matches counts.

    An instance that finds no room is accepted, and fails with ``cannot_start_capacity`` when its boot time is over.

    :param profile: shell pattern; ``zone``: shell pattern; ``spot``: None = both.
    :param room: how many of them may live at once.
    """

    profile: str = "*"
    zone: str = "*"
    spot: bool | None = None
    room: int = 0

    def matches(self, profile: str, zone: str, spot: bool) -> bool:
        return fnmatchcase(profile, self.profile) and fnmatchcase(zone, self.zone) and self.spot in (None, spot)


@dataclass
class VpcBootRule(Rule):
    """An instance that does not become usable, or not for long.

    :param kind: ``failed`` (failed for ``code`` and ``message`` when the boot time is over), ``stuck`` (stays pending)
        or ``stopped`` (it runs, and is stopped after ``seconds`` for ``code``; with the code of a preemption it goes
        the way that its own policy says).
    :param code: of the status reason; for ``stopped`` the default is that of a preemption.
    :param profile: shell pattern of profiles; ``spot``: None = both.
    :param leave_volume: its boot volume stays when it is deleted.
    """

    kind: str = FAILED
    code: str = ""
    message: str = ""
    profile: str = "*"
    spot: bool | None = None
    seconds: float = 1.0
    leave_volume: bool = False

    def __post_init__(self) -> None:
        check_kind(self.kind, (FAILED, STUCK, STOPPED))

    def matches(self, profile: str, spot: bool) -> bool:
        return fnmatchcase(profile, self.profile) and self.spot in (None, spot)


@dataclass
class VpcDeleteRule(Rule):
    """A DELETE of an instance that was accepted, and does not happen.

    :param kind: ``swallowed`` (nothing changes) or ``stuck`` (stays in deleting until it is released).
    """

    kind: str = SWALLOWED

    def __post_init__(self) -> None:
        check_kind(self.kind, (SWALLOWED, DELETE_STUCK))


@dataclass
class ImageImportRule(Rule):
    """An import of an image that fails when its time is over.

    :param name: shell pattern of the names of images.
    :param code: of the status reason, and what IBM says.
    """

    name: str = "*"
    code: str = "image_data_corrupted"
    message: str = "The image data is corrupted and cannot be used."


@dataclass
class IbmVpcSettings(SimulatorSettings):
    """All settings with their defaults: a quick region without faults, whose limits nobody reaches.

    :param boot_seconds: from pending over starting to running; ``delete_seconds``: from deleting to gone.
    :param hidden_seconds: how long lists do not have a new instance; applies to ``hidden_rate`` of them.
    :param ghost_seconds: how long lists have a deleted instance, as deleting; applies to ``ghost_rate`` of them.
    :param delete_conflicts: an instance that is pending, starting or deleting is not deleted: 409.
    :param leak_rate: share of instances whose boot volume stays when they are deleted.
    :param address_seconds: from pending to available of a floating IP.
    :param import_seconds: from pending to available of an image; ``imports``: see `ImageImportRule`.
    :param group_lag_seconds: how long lists do not have a new resource group.
    :param page_limit: most entries of one page, whatever ``limit`` says.
    :param empty_pages: a list begins with a page that has no entries, and names a next one.
    :param throttle_size: calls at once, ``throttle_refill``: more of them each second; 0 = no throttle.
    :param capacity: see `ProfileCapacity`; where none matches there is room.
    :param quotas: limits of ``vcpus``, ``memory`` (GiB), ``instances``, ``volumes`` and ``images`` of the region, and
        of ``floating_ips`` of each zone. They are enforced.
    :param buckets: names of those that there are.
    :param token_seconds: life of a token of IAM.
    :param api_key: the only one that is let in. ``profile``: name of the only trusted profile.
    :param denied: shell patterns of operations that the access policy does not allow, for example ``vpc.list_keys``.
    """

    RULES: ClassVar[Mapping[str, Any]] = {
        "errors": VpcErrorRule,
        "boots": VpcBootRule,
        "deletes": VpcDeleteRule,
        "imports": ImageImportRule,
    }

    boot_seconds: Range = (0.05, 0.2)
    delete_seconds: Range = (0.02, 0.1)
    hidden_seconds: Range = (0.5, 1.0)
    hidden_rate: float = 0.0
    ghost_seconds: Range = (0.5, 1.0)
    ghost_rate: float = 0.0
    delete_conflicts: bool = False
    leak_rate: float = 0.0
    address_seconds: Range = (0.0, 0.0)
    import_seconds: Range = (0.05, 0.2)
    imports: list[ImageImportRule] = field(default_factory=list)
    group_lag_seconds: Range = (0.0, 0.0)
    page_limit: int = 100
    empty_pages: bool = False
    throttle_size: int = 0
    throttle_refill: float = 10.0
    boots: list[VpcBootRule] = field(default_factory=list)
    deletes: list[VpcDeleteRule] = field(default_factory=list)
    capacity: list[ProfileCapacity] = field(default_factory=list)
    quotas: dict[str, int] = field(default_factory=dict)
    buckets: list[str] = field(default_factory=lambda: ["images"])
    token_seconds: float = 3600.0
    api_key: str = "simulated-api-key"
    profile: str = "nodepool"
    denied: list[str] = field(default_factory=list)

    def _converted(self, name: str, value: Any) -> Any:
        if name == "capacity":
            return [entry if isinstance(entry, ProfileCapacity) else ProfileCapacity(**entry) for entry in value]
        return super()._converted(name, value)
