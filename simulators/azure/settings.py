# SPDX-License-Identifier: Apache-2.0
"""What can be set in the simulated subscription while it runs: times, lag, faults, capacity, quotas, buckets.

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

__all__ = ["ArmErrorRule", "AzureSettings", "SizeCapacity", "VmBootRule", "VmDeleteRule"]

#: Kinds of `VmBootRule`.
FAILED, STUCK, EVICTED = "failed", "stuck", "evicted"
#: Kinds of `VmDeleteRule`.
SWALLOWED, DELETE_STUCK = "swallowed", "stuck"


@dataclass
class ArmErrorRule(ErrorRule):
    """An API call that goes wrong.

    :param operation: shell pattern of kind and operation, for example ``virtualMachines.put``, ``*.list``.
    :param code: of Azure, of errors whose kind is a status; "" for a usual one of the status.
    """

    code: str = ""


@dataclass
class SizeCapacity:
    """How much room there is for some VMs; the first rule that matches counts.

    :param size: shell pattern; ``zone``: shell pattern, of VMs without a zone it is ""; ``spot``: None = both.
    :param room: how many of them may live at once; more are refused as AllocationFailed.
    :param late: the PUT is accepted, and its operation fails.
    """

    size: str = "*"
    zone: str = "*"
    spot: bool | None = None
    room: int = 0
    late: bool = False

    def matches(self, size: str, zone: str, spot: bool) -> bool:
        return fnmatchcase(size, self.size) and fnmatchcase(zone, self.zone) and self.spot in (None, spot)


@dataclass
class VmBootRule(Rule):
    """A VM that does not become usable, or not for long.

    :param kind: ``failed`` (Failed with ``code`` and ``message``, when the boot time is over), ``stuck`` (stays in
        Creating) or ``evicted`` (it runs, and is taken away after ``seconds``).
    :param nested: the code that says something is only in a detail of the error.
    :param size: shell pattern of sizes.
    """

    kind: str = FAILED
    code: str = "OSProvisioningTimedOut"
    message: str = "OS Provisioning did not finish in the allotted time."
    nested: bool = False
    size: str = "*"
    seconds: float = 1.0

    def __post_init__(self) -> None:
        check_kind(self.kind, (FAILED, STUCK, EVICTED))


@dataclass
class VmDeleteRule(Rule):
    """A DELETE of a VM that was accepted, and does not happen.

    :param kind: ``swallowed`` (nothing changes) or ``stuck`` (stays in Deleting until it is released).
    """

    kind: str = SWALLOWED

    def __post_init__(self) -> None:
        check_kind(self.kind, (SWALLOWED, DELETE_STUCK))


@dataclass
class AzureSettings(SimulatorSettings):
    """All settings with their defaults: a quick subscription without faults, whose limits nobody reaches.

    :param boot_seconds: from Creating to Succeeded; ``delete_seconds``: from Deleting to gone.
    :param hidden_seconds: how long a new VM is missing in lists; applies to ``hidden_rate`` of them.
    :param ghost_seconds: how long a deleted VM is still in lists, as Deleting; applies to ``ghost_rate`` of them.
    :param nic_reserved_seconds: how long the network interface of a VM that failed cannot be deleted after it.
    :param leak_rate: share of VMs whose interface, addresses and disk stay when they are deleted. Those of a VM that
        failed always do.
    :param retry_after_seconds: when operations of VMs and disks want to be looked at; Azure says 10 and 2.
    :param only_location: what was accepted is told by ``Location`` alone.
    :param page_limit: most entries of one page.
    :param throttles: whether there are the buckets that Azure documents (`simulators.azure.buckets`).
    :param capacity: see `SizeCapacity`; where none matches there is room.
    :param quotas: limit by name of the usage. They are enforced.
    :param token_seconds: life of a token.
    :param client_id: the only one that is let in, with ``client_secret``.
    :param certificate: of the client, PEM; with it the client may prove who it is, too. "" = it has none.
    :param denied: shell patterns of operations that its role does not allow, for example ``disks.*``.
    """

    RULES: ClassVar[Mapping[str, Any]] = {
        "errors": ArmErrorRule,
        "boots": VmBootRule,
        "deletes": VmDeleteRule,
    }

    boot_seconds: Range = (0.05, 0.2)
    delete_seconds: Range = (0.02, 0.1)
    hidden_seconds: Range = (0.5, 1.0)
    hidden_rate: float = 0.0
    ghost_seconds: Range = (0.5, 1.0)
    ghost_rate: float = 0.0
    nic_reserved_seconds: float = 180.0
    leak_rate: float = 0.0
    retry_after_seconds: int = 1
    only_location: bool = False
    page_limit: int = 1000
    throttles: bool = False
    boots: list[VmBootRule] = field(default_factory=list)
    deletes: list[VmDeleteRule] = field(default_factory=list)
    capacity: list[SizeCapacity] = field(default_factory=list)
    quotas: dict[str, int] = field(default_factory=dict)
    token_seconds: float = 3599.0
    client_id: str = "11111111-2222-3333-4444-555555555555"
    client_secret: str = "simulated-secret"
    certificate: str = ""
    denied: list[str] = field(default_factory=list)

    def _converted(self, name: str, value: Any) -> Any:
        if name == "capacity":
            return [entry if isinstance(entry, SizeCapacity) else SizeCapacity(**entry) for entry in value]
        return super()._converted(name, value)
