# SPDX-License-Identifier: Apache-2.0
"""The node request record, ``/nodepool/requests/<PPP>-<seq>`` (reference/zookeeper 4); then for whom a request is."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any, ClassVar, Final, Self

from nodepool.model import states
from nodepool.model.record import Record

#: Of what a requestor gave, in the record of a request that cannot be written as a whole: values, and their length.
MOST_VALUES: Final = 200
MOST_CHARACTERS: Final = 500

#: Requestor of a request for a part of the nodes of another one, ``parent`` in ``requestor_data`` (rules MN).
PART_REQUESTOR: Final = "NodePool:mixed"
#: Requestor of a request for the node that a candidate is checked on; the path of its upload is ``upload`` in
#: ``requestor_data`` (rules CA).
CHECK_REQUESTOR: Final = "NodePool:canary"
#: How the requestor of requests of ``nodepool request`` begins; user and host follow.
REQUEST_COMMAND: Final = "nodepool request"

#: Service order inside a pool: (PPP as text, relative priority, sequence as text).
OrderKey = tuple[str, int, str]


class NodeRequest(Record):
    """One request for a set of nodes.

    :param id: znode name, None until it is stored.
    """

    STATES: ClassVar[tuple[str, ...]] = states.REQUEST_STATES
    MOVES = states.REQUEST_MOVES

    # Zuul takes the key when it is there, so null must not replace a name that it knows.
    LEFT_OUT = ("tenant_name",)
    OTHER_KEYS = ("reuse",)

    # Zuul reads requests of others, too, and needs all the others of these keys (reference/zookeeper 4.2).
    node_types: list[str]
    nodes: list[str]
    declined_by: list[str]
    requestor_data: Any
    requestor: str | None
    provider: str | None
    event_id: str | None
    relative_priority: int = 0
    created_time: float | None
    tenant_name: str | None
    reuse: bool

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id)
        self.reuse = True

    def __repr__(self) -> str:
        return f"<NodeRequest {self.id} {self.state} {','.join(self.node_types)}>"

    @property
    def priority(self) -> str:
        """The ``PPP`` part of the id, as text."""
        return (self.id or "").partition("-")[0]

    @property
    def order_key(self) -> OrderKey:
        priority, _, sequence = (self.id or "").partition("-")
        return (priority, self.relative_priority, sequence)

    def fail_in_short(self) -> None:
        """Let it fail, in a record that can be written whatever the requestor has put into it: long values go.

        Zuul finds the build set by a short value in ``requestor_data``.
        """
        self.state = states.FAILED
        self.nodes, self.declined_by = [], []
        self.node_types = [label[:MOST_CHARACTERS] for label in self.node_types[:MOST_VALUES]]
        self.requestor_data = _short(self.requestor_data) if isinstance(self.requestor_data, dict) else None
        self.extra = _short(self.extra)

    def to_dict(self, now: float) -> dict[str, Any]:
        """The JSON object to store; gives a changed state its time.

        :param now: seconds since the epoch.
        """
        if self.created_time is None:
            self.created_time = now
        data = super().to_dict(now)
        data["reuse"] = self.reuse
        return data

    @classmethod
    def from_dict(cls, data: dict[str, Any], id: str | None = None) -> Self:
        """Read a record.

        :raises InvalidRecord: when a field that decisions rest on has the wrong type.
        """
        request = cls(id=id)
        request.load(data)
        return request

    @classmethod
    def fromDict(cls, d: dict[str, Any], o_id: str | None = None) -> Self:
        """`from_dict`, for drivers written for 11.0.0."""
        return cls.from_dict(d, o_id)

    def getSafeAttributes(self) -> SimpleNamespace:
        """What texts of users may say of a request, such as dynamic tags. For drivers written for 11.0.0."""
        names = ("id", "requestor", "requestor_data", "relative_priority", "event_id", "created_time", "tenant_name")
        return SimpleNamespace(labels=self.node_types, **{name: getattr(self, name) for name in names})

    def load(self, data: dict[str, Any]) -> None:
        """Overwrite this record's fields in place. Raises InvalidRecord."""
        super().load(data)
        self.reuse = data.get("reuse", True) is not False


def parent_of(request: NodeRequest) -> str | None:
    """Id of the request for a part of whose nodes a request is; None = it is for itself."""
    data = request.requestor_data
    found = data.get("parent") if request.requestor == PART_REQUESTOR and isinstance(data, dict) else None
    return found if isinstance(found, str) else None


def _short(values: dict[str, Any]) -> dict[str, Any]:
    """Those that are not long."""
    short = {name: value for name, value in values.items() if len(name) + len(repr(value)) <= MOST_CHARACTERS}
    return dict(itertools.islice(short.items(), MOST_VALUES))


# For whom a node request is, as far as its record says, for people who read logs and listings.

#: Key of ``requestor_data`` -> what it is called. Zuul writes all but the project.
_KEYS: Final = {"job_name": "job", "project_name": "project", "pipeline_name": "pipeline", "tenant_name": "tenant"}
#: Longest name that is shown: names come from other programs.
MAX_NAME: Final = 100
#: Labels of one request that are named.
MAX_LABELS: Final = 10


def origin_of(request: NodeRequest) -> dict[str, str]:
    """``job``, ``project``, ``pipeline`` and ``tenant`` of a request, those that are known."""
    data = request.requestor_data
    found: dict[str, str] = {}
    if isinstance(data, dict):
        found = {name: _cut(data[key]) for key, name in _KEYS.items() if isinstance(data.get(key), str) and data[key]}
    if "tenant" not in found and request.tenant_name:
        found["tenant"] = _cut(request.tenant_name)
    return found


def project_of(request: NodeRequest) -> str | None:
    """For which project a request is; None = its record does not say it."""
    return origin_of(request).get("project")


def described(request: NodeRequest) -> str:
    """Labels and origin of a request, e.g. ``2 x gpu, small; job unit, pipeline check, tenant t1``."""
    counts = {label: request.node_types.count(label) for label in dict.fromkeys(request.node_types)}
    labels = [label if count == 1 else f"{count} x {label}" for label, count in counts.items()]
    if len(labels) > MAX_LABELS:
        labels[MAX_LABELS:] = [f"{len(labels) - MAX_LABELS} more labels"]
    origin = ", ".join(f"{name} {value}" for name, value in origin_of(request).items())
    return "; ".join(part for part in (", ".join(labels), origin) if part)


def _cut(name: str) -> str:
    """In one line, of bounded length."""
    return " ".join(name.split())[:MAX_NAME]


def checked_upload(request: NodeRequest) -> str | None:
    """Path of the upload that a node of a request is checked for; None = it is another request."""
    data = request.requestor_data
    found = data.get("upload") if request.requestor == CHECK_REQUESTOR and isinstance(data, dict) else None
    return found if isinstance(found, str) else None
