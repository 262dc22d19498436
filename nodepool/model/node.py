# SPDX-License-Identifier: Apache-2.0
"""The node record, ``/nodepool/nodes/<id>`` (reference/zookeeper 5.1); then quota arithmetic."""

from __future__ import annotations

import copy
import math
from typing import Any, ClassVar, Final, NamedTuple, Self

from nodepool.model import states
from nodepool.model.record import DeletableRecord, is_finite


class Node(DeletableRecord):
    """One test machine.

    :param type: label names of the node.
    :param id: znode name, None until it is stored.
    """

    STATES: ClassVar[tuple[str, ...]] = (states.INIT, *(s for s in states.NODE_STATES if s != states.INIT))
    MOVES = states.NODE_MOVES

    LEFT_OUT = ("request_event_id",)
    # Zuul adds ``id`` when it writes; it is the name of the znode.
    OTHER_KEYS = ("id", "ssh_port")

    type: list[str]
    allocated_to: str | None
    provider: str | None
    pool: str | None
    cloud: str | None
    region: str | None
    az: str | None
    host_id: str | None
    hostname: str | None
    interface_ip: str | None
    public_ipv4: str | None
    private_ipv4: str | None
    public_ipv6: str | None
    private_ipv6: str | None
    connection_type: str | None
    username: str | None = "zuul"
    python_path: str | None
    shell_type: str | None
    image_id: str | None
    launcher: str | None
    tenant_name: str | None
    requestor: str | None
    external_id: Any
    connection_port: Any = 22
    comment: Any
    hold_job: Any
    user_data: Any
    slot: int | None
    driver_data: Any
    host_keys: list[str]
    created_time: float | None
    hold_expiration: int | None
    resources: dict[str, Any] | None
    attributes: dict[str, Any] | None
    #: None only in a record that another program wrote.
    node_properties: dict[str, Any] | None
    #: Event of Zuul behind the request of ``allocated_to``, for the log. It is a key of our own: a record without it is
    #: as Nodepool 11 writes it.
    request_event_id: str | None

    def __init__(self, type: str | list[str] | None = None, id: str | None = None) -> None:
        super().__init__(id)
        self.type = [type] if isinstance(type, str) else list(type or ())
        self.node_properties = {}

    def __repr__(self) -> str:
        return f"<Node {self.id} {self.state} {','.join(self.type)} {self.provider}/{self.pool}>"

    def free(self) -> None:
        """No one has it any more. A ready node counts for no tenant then; what is still to be deleted does (Q-15)."""
        self.allocated_to = self.request_event_id = None
        if self.state == states.READY:
            self.tenant_name = None

    def leave_out_notes(self) -> None:
        """Forget what others have put into the record for themselves, which may be of any length."""
        self.user_data = self.comment = self.hold_job = None
        self.host_keys = []
        self.extra = {}

    def hold(self, *, by: str, reason: str | None, seconds: int | None) -> None:
        """Keep the node, for an operator.

        :param by: who asks for it. Launchers of 11.0.0 do not know the key: they drop it with their next write.
        :param reason: None = the one that is there stays.
        :param seconds: it is deleted after so many; None = the limit that is there stays.
        """
        self.state = states.HOLD
        self.extra = {**self.extra, _HOLD_BY: by}
        if reason is not None:
            self.comment = reason
        if seconds is not None:
            self.hold_expiration = seconds

    @property
    def hold_by(self) -> str | None:
        """Who asked for the hold, if an operator did."""
        by = self.extra.get(_HOLD_BY)
        return by if isinstance(by, str) else None

    @property
    def hold_until(self) -> float | None:
        """When a held node is deleted, in seconds since the epoch; None = it has no end of its own."""
        seconds = self.hold_expiration or 0
        if self.state != states.HOLD or self.state_time is None or seconds <= 0 or not is_finite(seconds):
            return None
        return self.state_time + seconds

    def to_dict(self, now: float) -> dict[str, Any]:
        """The JSON object to store; gives a changed state its time.

        :param now: seconds since the epoch.
        """
        if self.created_time is None:
            self.created_time = now
        data = super().to_dict(now)
        data["ssh_port"] = self.connection_port
        return data

    @classmethod
    def from_dict(cls, data: dict[str, Any], id: str | None = None) -> Self:
        """Read a record.

        :raises InvalidRecord: when a field that decisions rest on has the wrong type.
        """
        node = cls(id=id)
        node.load(data)
        return node

    @classmethod
    def fromDict(cls, d: dict[str, Any], o_id: str | None = None) -> Self:
        """`from_dict`, for drivers written for 11.0.0."""
        return cls.from_dict(d, o_id)

    def load(self, data: dict[str, Any]) -> None:
        """Overwrite this record's fields in place. Raises InvalidRecord."""
        labels, event_id = data.get("type"), data.get("request_event_id")
        read = {"connection_port": data.get("ssh_port", 22), "node_properties": {}, **data}
        # Old records hold one label as a bare string.
        read["type"] = [labels] if isinstance(labels, str) else labels
        read["hold_expiration"] = _hold_expiration(data.get("hold_expiration"))
        read["request_event_id"] = event_id if isinstance(event_id, str) else None
        super().load(read)


#: Key of who asked for a hold. Zuul keeps keys that it does not know.
_HOLD_BY: Final = "hold_by"


def _hold_expiration(value: Any) -> int | None:
    """Strings are coerced; what is no number means 0, no limit (reference/zookeeper 5.1)."""
    if value is None:
        return None
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        return 0


# Quota arithmetic, also of a node's ``resources`` (reference/driver 12).


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
