# SPDX-License-Identifier: Apache-2.0
"""How long requests waited, as the metrics have it."""

from __future__ import annotations

import pytest

from nodepool.clock import wall_time
from nodepool.launcher.pool import ended_requests
from nodepool.metrics.catalog import REQUEST_WAIT
from nodepool.metrics.process import REGISTRY
from nodepool.metrics.registry import Distribution
from nodepool.model import states
from nodepool.model.request import NodeRequest
from nodepool.plan.queue import MIN_READY_REQUESTOR
from tests.support.counted import Counted


@pytest.fixture
def counted() -> Counted:
    return Counted(REQUEST_WAIT)


def ended(state: str = states.FULFILLED, created: float | None = 0.0) -> NodeRequest:
    request = NodeRequest("100-1")
    request.node_types, request.state, request.created_time = ["ended-b", "ended-a", "ended-b"], state, created
    return request


@pytest.mark.parametrize("state", [states.FULFILLED, states.FAILED])
def test_ended(counted: Counted, state: str) -> None:
    """WP-77: once for each label, with the outcome."""
    ended_requests.note(ended(state))
    assert counted.new() == {("ended-a", state): 1, ("ended-b", state): 1}


def test_not_noted(counted: Counted) -> None:
    """WP-77: one that goes on, one without a time, and those that nobody waits for."""
    ended_requests.note(ended(states.REQUESTED))
    ended_requests.note(ended(created=None))
    kept_ready = ended()
    kept_ready.requestor = MIN_READY_REQUESTOR
    ended_requests.note(kept_ready)
    assert counted.new() == {}


def test_clock_of_another_host(counted: Counted) -> None:
    """A sum may not go down."""
    request = ended(created=wall_time() + 1000.0)
    request.node_types = ["ended-early"]
    ended_requests.note(request)
    noted = REGISTRY.snapshot()[REQUEST_WAIT.series("ended-early", "fulfilled")]
    assert isinstance(noted, Distribution)
    assert (noted.count, noted.sum_seconds) == (1, 0.0)
