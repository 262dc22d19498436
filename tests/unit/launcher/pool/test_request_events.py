# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from nodepool.launcher.event_ring import EventRing
from nodepool.launcher.pool.request_events import RequestEvents
from nodepool.model import states
from nodepool.model.reasons import Reason, ReasonCode
from nodepool.model.request import NodeRequest
from nodepool.plan.queue import MIN_READY_REQUESTOR


def declined(code: ReasonCode, state: str = states.REQUESTED) -> list[tuple[str, str, str, str, str]]:
    ring = EventRing()
    request = NodeRequest("200-0000000001")
    request.state = state
    RequestEvents(ring, "l1 lab/main").declined(request, Reason(code, "why"))
    return [(event.actor, event.subject, event.what, event.code, event.text) for event in ring.last(10)]


@pytest.mark.parametrize("code", list(ReasonCode))
def test_a_request_that_fails_is_an_event_whatever_the_reason(code: ReasonCode) -> None:
    """A-14"""
    text = "every pool declined it, the last one because: why"
    assert declined(code, states.FAILED) == [("l1 lab/main", "request 200-0000000001", "failed", code.value, text)]


def test_a_pool_that_has_not_the_label_is_no_event() -> None:
    """Every request is declined by most pools."""
    assert declined(ReasonCode.LABEL_UNKNOWN) == []
    assert declined(ReasonCode.POOL_WITHOUT_LAUNCHES) == []


def test_trouble_in_a_pool_is_an_event() -> None:
    assert declined(ReasonCode.LAUNCH_FAILED) == [
        ("l1 lab/main", "request 200-0000000001", "declined", "launch.failed", "why")
    ]


def test_a_request_for_min_ready_that_fails_is_an_event_of_the_label() -> None:
    """M-4, A-14: nobody waits for it, so nobody would ask about the request."""
    ring = EventRing()
    request = NodeRequest("300-0000000001")
    request.state, request.requestor, request.node_types = states.FAILED, MIN_READY_REQUESTOR, ["gpu"]
    RequestEvents(ring, "l1 lab/main").declined(request, Reason(ReasonCode.LAUNCH_FAILED, "why"))
    (found,) = [event for event in ring.last(10) if event.kind == "label"]
    assert (found.subject, found.what, found.code) == ("label gpu", "failed", "launch.failed")
    assert found.text == "no more ready node of gpu: every pool declined it, the last one because: why"
