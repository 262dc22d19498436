# SPDX-License-Identifier: Apache-2.0
"""nodepool.model.request: the request record (reference/zookeeper 4)."""

from __future__ import annotations

from typing import Any

import pytest

from nodepool.model.record import InvalidRecord
from nodepool.model.request import NodeRequest

#: What Zuul sends on submit (4.2).
FROM_ZUUL: dict[str, Any] = {
    "requestor_data": {"build_set_uuid": "b", "tenant_name": "t", "span_info": None},
    "node_types": ["small", "small", "large"],
    "requestor": "zuul",
    "created_time": 12.5,
    "provider": None,
    "state": "requested",
    "state_time": 12.25,
    "relative_priority": 3,
    "event_id": "e",
    "tenant_name": "t",
}


def test_request_of_zuul() -> None:
    request = NodeRequest.from_dict(FROM_ZUUL, "200-0000000007")
    assert request.node_types == ["small", "small", "large"]
    assert (request.nodes, request.declined_by, request.reuse) == ([], [], True)
    assert (request.priority, request.order_key) == ("200", ("200", 3, "0000000007"))
    written = request.to_dict(99.0)
    assert written == {**FROM_ZUUL, "nodes": [], "declined_by": [], "reuse": True}


def test_own_request_has_the_keys_that_zuul_needs() -> None:
    """reference/zookeeper 4.2: else Zuul logs an exception for each event."""
    data = NodeRequest().to_dict(5.0)
    needed = {"state", "state_time", "node_types", "requestor", "requestor_data", "provider", "event_id"}
    assert needed <= data.keys()
    assert (data["state"], data["state_time"], data["created_time"]) == ("requested", 5.0, 5.0)


def test_null_never_replaces_a_tenant() -> None:
    """reference/zookeeper 4.2: if the key is present Zuul takes it."""
    assert "tenant_name" not in NodeRequest().to_dict(1.0)
    request = NodeRequest.from_dict({"state": "requested", "tenant_name": None})
    assert "tenant_name" not in request.to_dict(1.0)


def test_unknown_keys_survive() -> None:
    request = NodeRequest.from_dict({**FROM_ZUUL, "new_key": [1]})
    assert request.to_dict(1.0)["new_key"] == [1]


@pytest.mark.parametrize(("value", "reuse"), [(True, True), (False, False), (None, True)])
def test_reuse(value: Any, reuse: bool) -> None:
    assert NodeRequest.from_dict({"state": "requested", "reuse": value}).reuse is reuse


@pytest.mark.parametrize(
    "change",
    [
        {"state": "ready"},
        {"state": None},
        {"node_types": "small"},
        {"node_types": [None]},
        {"nodes": {}},
        {"declined_by": "x"},
        {"relative_priority": "1"},
        {"relative_priority": 1.5},
        {"relative_priority": True},
        {"provider": 1},
        {"requestor": {}},
        {"created_time": "x"},
        {"tenant_name": 1},
    ],
)
def test_wrong_types_are_no_request(change: dict[str, Any]) -> None:
    with pytest.raises(InvalidRecord):
        NodeRequest.from_dict({**FROM_ZUUL, **change})


def test_opaque_data_is_returned_unchanged() -> None:
    for value in (None, 5, "x", [{"a": 1}], {"a": None}):
        assert NodeRequest.from_dict({**FROM_ZUUL, "requestor_data": value}).to_dict(1.0)["requestor_data"] == value


def test_order_is_text_number_text() -> None:
    """A-1: PPP as text, relative priority as number, sequence as text."""

    def key(id: str, relative: int = 0) -> tuple[str, int, str]:
        request = NodeRequest(id)
        request.relative_priority = relative
        return request.order_key

    ids = [
        *(key("099-0000000009", 5), key("100-0000000001"), key("200-0000000003", 2), key("200-0000000001", 10)),
        *(key("200-0000000002", 10), key("900-0000000000")),
    ]
    shuffled = [ids[number] for number in (3, 5, 0, 2, 4, 1)]
    assert sorted(shuffled) == ids


def test_copy_is_independent() -> None:
    request = NodeRequest.from_dict(FROM_ZUUL, "200-0000000007")
    copy = request.copy()
    copy.declined_by.append("pool")
    copy.requestor_data["tenant_name"] = "other"
    assert request.declined_by == []
    assert request.requestor_data["tenant_name"] == "t"


class TestForReleasedDrivers:
    """Methods of 11.0.0."""

    def test_dict_there_and_back(self) -> None:
        data = NodeRequest().to_dict(5.0)
        request = NodeRequest.fromDict({**data, "node_types": ["a"], "jenkins_label": "x"}, "100-1")
        assert request.toDict() == {**data, "node_types": ["a"], "jenkins_label": "x"}
        request.updateFromDict({**data, "node_types": ["b"]})
        assert (request.id, request.node_types) == ("100-1", ["b"])

    def test_to_dict_changes_nothing(self) -> None:
        """A state gets its time with the next write, as before."""
        request = NodeRequest()
        assert request.toDict()["created_time"] is None
        assert request.to_dict(7.0)["state_time"] == 7.0

    def test_stat(self) -> None:
        assert NodeRequest().stat is None
        request = NodeRequest()
        request.version, request.mzxid = 3, 99
        assert request.stat == (3, 99)

    def test_safe_attributes(self) -> None:
        """For dynamic tags."""
        request = NodeRequest("500-1")
        request.node_types, request.requestor, request.tenant_name = ["a", "b"], "zuul", "acme"
        safe = request.getSafeAttributes()
        text = "{request.id} {request.labels} {request.requestor} {request.tenant_name} {request.event_id}"
        assert text.format(request=safe) == "500-1 ['a', 'b'] zuul acme None"
        assert not hasattr(safe, "lock")


def test_renew() -> None:
    """Everything is as it was read again, but the lock."""
    request, fresh = NodeRequest("500-1"), NodeRequest("500-1")
    lock: Any = object()
    request.lock, request.version = lock, 1
    fresh.relative_priority, fresh.version = 7, 2
    request.renew(fresh)
    assert (request.relative_priority, request.version, request.lock) == (7, 2, lock)
