# SPDX-License-Identifier: Apache-2.0
"""For whom a node is, and what is done with it."""

from __future__ import annotations

from typing import Any

import pytest

from nodepool.model import states
from nodepool.model.event import Event
from nodepool.model.node import Node
from nodepool.model.status import FailedLaunch, LaunchesStatus, LaunchStatus
from nodepool.plan.explain import explain_node
from nodepool.plan.explained import ExplainedNode
from tests.support.observed import NOW, component, known, node, request, seen, status


def explained(one: Node, *requests: Any, **fields: Any) -> ExplainedNode:
    fields = {"registered": [component("cloud-1", "gpu")], **fields}
    return explain_node(one, seen(*requests, nodes=known(one), **fields))


def allocated(state: str) -> Node:
    made = node(1, state=state)
    made.allocated_to = "200-0000000007"
    return made


@pytest.mark.parametrize(
    ("state", "text"),
    [
        (states.BUILDING, "is being launched in cloud-1/main for request 200-0000000007, job unit, pipeline check"),
        (states.READY, "is ready for request 200-0000000007, job unit, pipeline check"),
        (states.IN_USE, "is in use for request 200-0000000007, job unit, pipeline check"),
        (states.USED, "was used for request 200-0000000007, job unit, pipeline check"),
        (states.FAILED, "could not be launched for request 200-0000000007, job unit, pipeline check"),
    ],
)
def test_of_a_request(state: str, text: str) -> None:
    found = explained(allocated(state), request(7, state=states.FULFILLED))
    assert found.text.startswith(text)
    assert (found.request, found.job, found.tenant, found.event_id) == ("200-0000000007", "unit", "t1", "6c1e")
    assert (found.age_seconds, found.state_seconds) == (100, 50)
    assert [moment.what for moment in found.history] == ["created", state]


def test_request_that_is_gone() -> None:
    """Zuul removes it when it has the nodes: then the tenant is all that is known."""
    one = allocated(states.IN_USE)
    one.tenant_name = "t1"
    assert explained(one).text == "is in use for request 200-0000000007, tenant t1"
    assert "(the request is gone)" in explained(allocated(states.READY)).text


def test_free_node_that_nobody_takes() -> None:
    """E-7"""
    assert explained(node(1)).text == "is ready and free; no request wants gpu"
    found = explained(node(1), request(7), request(5), request(6, "arm"))
    assert found.text == (
        "is ready and free; 2 requests want gpu; "
        "nodepool explain 200-0000000005 tells why the first one does not take it"
    )


def test_missing_instance() -> None:
    """D-9: it may be in another place."""
    found = explained(node(1), statuses=[status("cloud-1", missing={node(1).key: 1.0})])
    assert found.text == "is ready, but the cloud does not show its instance any more: it is not used"
    assert "nodepool explain cloud-1 shows why, and what ends it" in found.remedies


def test_locked_node() -> None:
    found = explained(node(1), locked=frozenset({"0000000001"}))
    assert (found.locked, found.text) == (True, "is ready and locked: a launcher checks or takes it")


def test_hold() -> None:
    one = node(1, state=states.HOLD)
    one.hold(by="alice@desk", reason="debug the network", seconds=3600)
    found = explained(one)
    assert found.text == "is kept on hold by alice@desk because of debug the network; launchers delete it in 1 h"
    assert (found.held_by, found.held_until) == ("alice@desk", NOW - 50 + 3600)
    assert (found.hold_reason, found.remedies) == ("debug the network", ["nodepool delete 0000000001 ends the hold"])


def test_deletion_that_fails() -> None:
    one = node(1, state=states.DELETING)
    one.state_time = NOW - 700
    event = Event(NOW - 5, "l1", "node 0000000001", "deletion failed", "", "attempt 7: HTTP 500")
    found = explained(one, events=[event])
    assert found.text == "is being deleted by a launcher with provider cloud-1: attempt 7: HTTP 500"
    assert found.remedies == ["it is deleting for long; search the log of l1 for 0000000001"]
    assert found.history[-1].text == "attempt 7: HTTP 500"


def test_launch_that_failed() -> None:
    error = FailedLaunch("error.status", "the cloud refuses the server", NOW - 5, "0000000001")
    told = status("cloud-1", launches=LaunchesStatus(last_error=error))
    assert "the cloud refuses the server" in explained(node(1, state=states.FAILED), statuses=[told]).text


def test_node_of_nobody() -> None:
    found = explained(node(1, state=states.USED), registered=[])
    assert found.remedies == ["no launcher serves provider cloud-1"]


def test_node_of_a_request_that_waits() -> None:
    found = explained(allocated(states.READY), request(7, state=states.PENDING))
    assert found.remedies == ["nodepool explain 200-0000000007 tells what its request waits for"]


def test_unknown_state() -> None:
    assert explained(node(1, state=states.TESTING)).text == "is testing"


def test_a_launch_that_takes_long() -> None:
    """E-10: the step, and where to look; its request has no more to say of it."""
    launch = LaunchStatus(
        "0000000001", "gpu", "build", "building", NOW - 75, NOW - 70, NOW + 3525, "launch-timeout", 4.0, slow=True
    )
    one = allocated(states.BUILDING)
    one.external_id = "server-1"
    found = explained(one, request(7, state=states.PENDING), statuses=[status("cloud-1", launching=[launch])])
    assert "; it waits for the cloud, which has it and does not run it yet (it is building) for 1 min" in found.text
    assert found.remedies == [
        "look at instance server-1 in the cloud of provider cloud-1; launch-timeout ends the attempt"
    ]
    assert explained(one, request(7, state=states.PENDING)).remedies == []
