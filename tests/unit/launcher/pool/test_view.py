# SPDX-License-Identifier: Apache-2.0
"""What triage sees of a pool, without ZooKeeper: answers are worked out when they are asked for, and kept."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any, cast

import pytest

from nodepool.launcher.pool import view as view_module
from nodepool.launcher.pool.view import OBJECTION_SECONDS, PoolView, RequestView
from nodepool.logconfig import get_annotated_logger
from nodepool.model.reasons import POOL_DISABLED, Reason, ReasonCode, ReasonText
from nodepool.model.request import NodeRequest
from nodepool.plan.nodes import ReadyNodes
from nodepool.plan.queue import RequestKind
from nodepool.plan.triage import Consider, Decline, Leave, PoolInfo
from tests.support.manual_clock import ManualClock, monotonic_clock


class Place:
    """A pool ``me`` of provider ``one``, and what the driver says."""

    launcher_id, provider_name = "me", "one"

    def __init__(self) -> None:
        self.others: list[PoolInfo] = []
        self.config: object = SimpleNamespace(name="one")
        self.provider = SimpleNamespace(LAUNCHES=True)
        self.said: list[str] = []
        self.asked: list[str] = []
        self.handlers = 0
        self.room = SimpleNamespace(
            paused=False, max_concurrency=5, launches_running=2, provider_paused=None, begin_pass=lambda: None
        )
        self.turns: tuple[PoolInfo, ...] = ()
        turns = SimpleNamespace(begin_pass=lambda me, registered: None, of_others=lambda kind, request: self.turns)
        self.view = PoolView(cast(Any, self), ReadyNodes(), cast(Any, self.room), cast(Any, turns), self._make)

    def registered_pools(self) -> list[PoolInfo]:
        return self.others

    def absent_pools(self) -> list[PoolInfo]:
        return []

    def held(self, labels: tuple[str, ...]) -> Reason | None:
        return POOL_DISABLED if "held" in labels else None

    def sibling_serves(self, request_id: str) -> bool:
        return request_id == "100-2"

    def _make(self, request: NodeRequest) -> Any:
        self.handlers += 1
        return SimpleNamespace(
            log=get_annotated_logger(logging.getLogger("test.view")),
            request=request,
            provider=self.config,
            getDeclinedReasons=self._all,
            basic_decline_reasons=self._basic,
        )

    def _all(self) -> list[str]:
        self.asked.append("all")
        return self.said

    def _basic(self) -> list[str]:
        self.asked.append("basic")
        return self.said

    def begin(self, *labels: str) -> None:
        self.view.begin_pass(frozenset(labels), 100)

    def look(self, number: int = 1) -> RequestView:
        request = NodeRequest(f"100-{number}")
        request.node_types = ["small"]
        return RequestView(self.view, RequestKind.of(request), request)


KIND = RequestKind(("small",), None, frozenset(), None, True, False)


@pytest.fixture
def place() -> Place:
    return Place()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    return monotonic_clock(monkeypatch, view_module)


def test_screened_once_for_each_registry(place: Place) -> None:
    """A-2 to A-6: an answer holds as long as registry and pool are the same."""
    place.begin("small")
    first = place.view.screened(KIND)
    assert isinstance(first, Consider)
    place.begin("small")
    assert place.view.screened(KIND) is first
    place.others = [PoolInfo("other", "two", frozenset({"small"}), 1, paused=False)]
    place.begin("small")
    assert isinstance(place.view.screened(KIND), Leave)
    place.others = []
    place.begin("big")
    assert isinstance(place.view.screened(KIND), Decline)


def test_no_pass(place: Place) -> None:
    with pytest.raises(RuntimeError, match="no pass"):
        place.view.screened(KIND)


def test_driver_is_asked_once_in_a_while(place: Place, clock: ManualClock) -> None:
    """A-7: for the same kind and the same configuration."""
    place.begin("small")
    assert not place.view.driver_agreed(KIND)
    assert place.look().objection is None
    assert place.view.driver_agreed(KIND)
    assert place.look().objection is None
    assert place.asked == ["all"]
    clock.pass_seconds(OBJECTION_SECONDS)
    assert not place.view.driver_agreed(KIND)
    assert place.look().objection is None
    place.config = SimpleNamespace(name="one")
    assert not place.view.driver_agreed(KIND)
    assert place.asked == ["all", "all"]


def test_objections(place: Place) -> None:
    """A-13: with the code of what the framework says, or as the driver's own."""
    place.begin("small")
    place.said = [ReasonText(POOL_DISABLED)]
    assert place.look().basic_objection is POOL_DISABLED
    place.said = ["no flavor", "no image"]
    objection = place.look().objection
    assert objection is not None
    assert (objection.code, objection.text) == (ReasonCode.DRIVER_DECLINED, "no flavor; no image")
    assert not place.view.driver_agreed(KIND)


def test_handler_is_made_when_it_is_needed(place: Place) -> None:
    place.begin("small")
    view = place.look()
    assert (view.paused, view.max_concurrency, view.launches_running, view.sibling_serves) == (False, 5, 2, False)
    assert place.look(2).sibling_serves
    assert place.handlers == 0
    assert view.basic_objection is None
    assert view.handler is view.handler
    assert place.handlers == 1


def test_turns(place: Place) -> None:
    assert not place.look().turn_of_another
    place.turns = (PoolInfo("other", "two", frozenset({"small"}), 1, paused=False),)
    assert place.look().turn_of_another
