# SPDX-License-Identifier: Apache-2.0
"""What can be set in the simulated region while it runs: times, lag, faults, capacity, quotas, buckets.

Every field has the same name in JSON (admin endpoint) and in Python. Times are in seconds; a range is
``[least, most]``, drawn evenly from the simulator's seeded generator.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, ClassVar

from simulators.aws.quota_list import QUOTAS
from simulators.base.rules import ErrorRule, Range, Rule, check_kind
from simulators.base.settings import SimulatorSettings

__all__ = ["AwsErrorRule", "AwsSettings", "CapacityRule", "EndRule", "ImportRule", "InstanceBootRule"]

#: Kinds of `InstanceBootRule`.
FAILED, STUCK, INTERRUPTED = "failed", "stuck", "interrupted"
#: Kinds of `EndRule`.
SWALLOWED, END_STUCK = "swallowed", "stuck"


@dataclass
class AwsErrorRule(ErrorRule):
    """An API call that goes wrong.

    :param operation: shell pattern of service and operation, for example ``ec2.RunInstances``, ``ec2.Describe*``.
    :param code: of AWS, of errors whose kind is a status; "" for a usual one of the status.
    """

    code: str = ""


@dataclass
class CapacityRule:
    """How much room there is for some instances; the first rule that matches counts.

    :param instance_type: shell pattern; ``zone``: shell pattern; ``spot``: None = both.
    :param room: how many of them may live at once; more are refused as InsufficientInstanceCapacity.
    """

    instance_type: str = "*"
    zone: str = "*"
    spot: bool | None = None
    room: int = 0

    def matches(self, instance_type: str, zone: str, spot: bool) -> bool:
        return (
            fnmatchcase(instance_type, self.instance_type)
            and fnmatchcase(zone, self.zone)
            and self.spot in (None, spot)
        )


@dataclass
class InstanceBootRule(Rule):
    """An instance that does not become usable, or not for long.

    :param kind: ``failed`` (terminated for ``code`` and ``message``, when the boot time is over), ``stuck`` (stays
        pending) or ``interrupted`` (it runs, and is ended after ``seconds``).
    :param code: of the StateReason.
    :param instance_type: shell pattern of types; ``spot``: None = both.
    """

    kind: str = FAILED
    code: str = "Server.InternalError"
    message: str = "Internal error on launch"
    instance_type: str = "*"
    spot: bool | None = None
    seconds: float = 1.0

    def __post_init__(self) -> None:
        check_kind(self.kind, (FAILED, STUCK, INTERRUPTED))

    def matches(self, instance_type: str, spot: bool) -> bool:
        return fnmatchcase(instance_type, self.instance_type) and self.spot in (None, spot)


@dataclass
class EndRule(Rule):
    """A TerminateInstances that was accepted for an instance, and does not happen.

    :param kind: ``swallowed`` (nothing changes) or ``stuck`` (stays in shutting-down until it is released).
    """

    kind: str = SWALLOWED

    def __post_init__(self) -> None:
        check_kind(self.kind, (SWALLOWED, END_STUCK))


@dataclass
class ImportRule(Rule):
    """An import that fails when its time is over.

    :param key: shell pattern of the keys of objects.
    :param message: what AWS says.
    """

    key: str = "*"
    message: str = "ClientError: Disk validation failed [Unsupported VMDK File Format]"


@dataclass
class AwsSettings(SimulatorSettings):
    """All settings with their defaults: a quick region without faults, whose limits nobody reaches.

    :param boot_seconds: from pending to running; ``end_seconds``: from shutting-down to terminated.
    :param terminated_seconds: for so long a terminated instance is shown; AWS does it for about an hour.
    :param hidden_seconds: how long a new instance is not there for all that ask; applies to ``hidden_rate`` of them.
    :param tag_lag_seconds: how long readers see the tags from before a CreateTags; applies to ``tag_lag_rate`` of them.
        ``late_tags``: the tags that a new thing is made with, too, are seen only then.
    :param host_seconds: from the allocation of a dedicated host until it is available.
    :param state_lag_seconds: how long readers see the state from before a change.
    :param page_limit: most entries of one page, whatever MaxResults says.
    :param empty_pages: a list begins with a page that has no entries, and names a next one.
    :param throttles: whether there are the buckets that AWS documents (`simulators.aws.buckets`).
    :param capacity: see `CapacityRule`; where none matches there is room.
    :param quotas: value by code, of Service Quotas; the codes are those of `simulators.aws.quota_list`.
        They are enforced for instances and volumes. ``instance_limit``: of all instances, -1 = none.
    :param import_seconds: of an import; ``register_seconds``: until a new AMI is available; ``complete_seconds``: until
        a snapshot is, whose blocks are written.
    :param import_limit: most imports at once; the same of snapshots that are written. ``imports``: see `ImportRule`.
    :param buckets: names of those that there are.
    :param access_key: the only one that is let in.
    :param denied: shell patterns of operations that its policy does not allow, for example ``ec2.CreateTags``.
    """

    RULES: ClassVar[Mapping[str, Any]] = {
        "errors": AwsErrorRule,
        "boots": InstanceBootRule,
        "ends": EndRule,
        "capacity": CapacityRule,
        "imports": ImportRule,
    }

    boot_seconds: Range = (0.05, 0.2)
    end_seconds: Range = (0.02, 0.1)
    terminated_seconds: float = 3600.0
    hidden_seconds: Range = (0.5, 1.0)
    hidden_rate: float = 0.0
    tag_lag_seconds: Range = (0.5, 1.0)
    tag_lag_rate: float = 0.0
    late_tags: bool = False
    state_lag_seconds: Range = (0.0, 0.0)
    host_seconds: Range = (0.02, 0.1)
    page_limit: int = 1000
    empty_pages: bool = False
    throttles: bool = False
    boots: list[InstanceBootRule] = field(default_factory=list)
    ends: list[EndRule] = field(default_factory=list)
    capacity: list[CapacityRule] = field(default_factory=list)
    quotas: dict[str, float] = field(default_factory=lambda: {quota.code: quota.value for quota in QUOTAS})
    instance_limit: int = -1
    import_seconds: Range = (0.05, 0.2)
    register_seconds: Range = (0.02, 0.1)
    complete_seconds: Range = (0.02, 0.1)
    import_limit: int = 20
    imports: list[ImportRule] = field(default_factory=list)
    buckets: list[str] = field(default_factory=lambda: ["images"])
    access_key: str = "AKIASIMULATED"
    denied: list[str] = field(default_factory=list)

    def _converted(self, name: str, value: Any) -> Any:
        if name == "quotas":
            return {**self.quotas, **{code: float(number) for code, number in value.items()}}
        if name == "capacity":
            return [entry if isinstance(entry, CapacityRule) else CapacityRule(**entry) for entry in value]
        return super()._converted(name, value)
