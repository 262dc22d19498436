# SPDX-License-Identifier: Apache-2.0
"""The node record, ``/nodepool/nodes/<id>`` (reference/zookeeper 5.1)."""

from __future__ import annotations

from typing import Any, ClassVar, Final, Self

from nodepool.model import states
from nodepool.model.record import (
    DeletableRecord,
    InvalidRecord,
    is_finite,
    optional_dict,
    optional_number,
    optional_str,
    str_list,
)


class Node(DeletableRecord):
    """One test machine.

    :param type: label names of the node.
    :param id: znode name, None until it is stored.
    """

    STATES: ClassVar[tuple[str, ...]] = (states.INIT, *(s for s in states.NODE_STATES if s != states.INIT))
    MOVES = states.NODE_MOVES

    #: Fields that are a string or null on the wire.
    TEXT_FIELDS: ClassVar[tuple[str, ...]] = (
        "allocated_to",
        "provider",
        "pool",
        "cloud",
        "region",
        "az",
        "host_id",
        "hostname",
        "interface_ip",
        "public_ipv4",
        "private_ipv4",
        "public_ipv6",
        "private_ipv6",
        "connection_type",
        "username",
        "python_path",
        "shell_type",
        "image_id",
        "launcher",
        "tenant_name",
        "requestor",
    )
    #: Fields that are passed through as they are.
    OPAQUE_FIELDS: ClassVar[tuple[str, ...]] = (
        "external_id",
        "connection_port",
        "comment",
        "hold_job",
        "user_data",
        "slot",
        "driver_data",
    )

    def __init__(self, type: str | list[str] | None = None, id: str | None = None) -> None:
        super().__init__(id)
        self.type: list[str] = [type] if isinstance(type, str) else list(type or ())
        self.allocated_to: str | None = None
        #: Event of Zuul behind the request of ``allocated_to``, for the log.
        self.request_event_id: str | None = None
        self.provider: str | None = None
        self.pool: str | None = None
        self.cloud: str | None = None
        self.region: str | None = None
        self.az: str | None = None
        self.host_id: str | None = None
        self.hostname: str | None = None
        self.interface_ip: str | None = None
        self.public_ipv4: str | None = None
        self.private_ipv4: str | None = None
        self.public_ipv6: str | None = None
        self.private_ipv6: str | None = None
        self.connection_type: str | None = None
        self.username: str | None = "zuul"
        self.python_path: str | None = None
        self.shell_type: str | None = None
        self.image_id: str | None = None
        self.launcher: str | None = None
        self.tenant_name: str | None = None
        self.requestor: str | None = None
        self.external_id: Any = None
        self.connection_port: Any = 22
        self.comment: Any = None
        self.hold_job: Any = None
        self.user_data: Any = None
        self.slot: int | None = None
        self.driver_data: Any = None
        self.host_keys: list[str] = []
        self.created_time: float | None = None
        self.hold_expiration: int | None = None
        self.resources: dict[str, Any] | None = None
        self.attributes: dict[str, Any] | None = None
        #: None only in a record that another program wrote.
        self.node_properties: dict[str, Any] | None = {}

    def __repr__(self) -> str:
        return f"<Node {self.id} {self.state} {','.join(self.type)} {self.provider}/{self.pool}>"

    def free(self) -> None:
        """Nobody has it any more. A ready node counts for no tenant then; what is still to be deleted does (Q-15)."""
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
        data = self._dump_state(now)
        data["type"] = self.type
        values = vars(self)
        for name in (*self.TEXT_FIELDS, *self.OPAQUE_FIELDS):
            data[name] = values[name]
        data["ssh_port"] = self.connection_port
        data["host_keys"] = self.host_keys
        data["created_time"] = self.created_time
        data["hold_expiration"] = self.hold_expiration
        data["resources"] = self.resources
        data["attributes"] = self.attributes
        data["node_properties"] = self.node_properties
        # A key of our own: records without one are those of Nodepool 11.
        if self.request_event_id is not None:
            data["request_event_id"] = self.request_event_id
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
        self._load_state(data)
        labels = data.get("type")
        # Old records hold one label as a bare string.
        self.type = [labels] if isinstance(labels, str) else str_list("type", labels)
        values = vars(self)
        for name in self.TEXT_FIELDS:
            value = data.get(name)
            values[name] = value if value is None else optional_str(name, value)
        if "username" not in data:
            self.username = "zuul"
        for name in self.OPAQUE_FIELDS:
            values[name] = data.get(name)
        if "connection_port" not in data:
            self.connection_port = data.get("ssh_port", 22)
        slot = data.get("slot")
        if slot is not None and (isinstance(slot, bool) or not isinstance(slot, int)):
            raise InvalidRecord("slot is not a whole number")
        self.slot = slot
        self.host_keys = str_list("host_keys", data.get("host_keys"))
        self.created_time = optional_number("created_time", data.get("created_time"))
        self.hold_expiration = _hold_expiration(data.get("hold_expiration"))
        self.resources = optional_dict("resources", data.get("resources"))
        self.attributes = optional_dict("attributes", data.get("attributes"))
        self.node_properties = optional_dict("node_properties", data.get("node_properties", {}))
        event_id = data.get("request_event_id")
        self.request_event_id = event_id if isinstance(event_id, str) else None
        self.extra = {k: v for k, v in data.items() if k not in _KNOWN}


#: Key of who asked for a hold. Zuul keeps keys that it does not know.
_HOLD_BY: Final = "hold_by"

_KNOWN = frozenset(
    {
        "id",  # Zuul adds it when it writes; it is the znode's name
        "state",
        "state_time",
        "type",
        "ssh_port",
        "host_keys",
        "created_time",
        "hold_expiration",
        "resources",
        "attributes",
        "node_properties",
        "request_event_id",
        *Node.TEXT_FIELDS,
        *Node.OPAQUE_FIELDS,
    }
)


def _hold_expiration(value: Any) -> int | None:
    """Strings are coerced; what is no number means 0, no limit (reference/zookeeper 5.1)."""
    if value is None:
        return None
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        return 0
