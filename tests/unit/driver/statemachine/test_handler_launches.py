# SPDX-License-Identifier: Apache-2.0
"""When the handler of a cloud request says that a poll would find nothing (A-19, reference/driver 3)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from nodepool.driver.statemachine.handler import StateMachineHandler
from nodepool.model import states
from nodepool.model.request import NodeRequest
from tests.unit.driver.statemachine.conftest import MakeSite


class OwnPoll(StateMachineHandler):
    def poll(self) -> bool:
        return super().poll()


class OwnEnd(StateMachineHandler):
    def launchesComplete(self) -> bool:
        return True


class Ends:
    @property
    def alive_thread_count(self) -> int:
        return 0


class MixedIn(Ends, StateMachineHandler):
    pass


class Below(OwnPoll):
    pass


class Plain(StateMachineHandler):
    pass


def handler_with(cls: type[StateMachineHandler], make_site: MakeSite, *complete: bool) -> StateMachineHandler:
    """A handler whose launches have ended, or not."""
    request = NodeRequest("100-0000000001")
    request.state, request.node_types = states.PENDING, ["small"] * len(complete)
    handler = cls(make_site().worker, request)
    launches: Any = {str(number): SimpleNamespace(complete=ended) for number, ended in enumerate(complete)}
    handler._launches = launches
    return handler


@pytest.mark.parametrize(
    ("complete", "awaits"),
    [((), False), ((True,), False), ((False,), True), ((True, False), True), ((True, True), False)],
)
def test_awaits_launches(make_site: MakeSite, complete: tuple[bool, ...], awaits: bool) -> None:
    """As long as one runs; without launches, as with ready nodes only, it is polled."""
    handler = handler_with(StateMachineHandler, make_site, *complete)
    assert handler.awaits_launches is awaits
    assert handler.launchesComplete() is not awaits


def test_who_tells_the_end_of_a_launch(make_site: MakeSite) -> None:
    """The launch, until it has ended; nobody for a node that was not launched."""
    handler = handler_with(StateMachineHandler, make_site, False, True)
    assert [handler.tells_end_of(node_id) for node_id in ("0", "1", "2")] == [True, False, False]


@pytest.mark.parametrize("cls", [OwnPoll, OwnEnd, MixedIn, Below])
def test_drivers_with_a_look_of_their_own(make_site: MakeSite, cls: type[StateMachineHandler]) -> None:
    """They are polled in each pass, as the contract says."""
    assert not handler_with(cls, make_site, False).awaits_launches


def test_drivers_that_add_nothing(make_site: MakeSite) -> None:
    assert handler_with(Plain, make_site, False).awaits_launches


def test_launches_are_counted_while_others_begin(make_site: MakeSite) -> None:
    """The thread that writes the status of a pool asks, and the pool's thread adds launches meanwhile."""
    handler = handler_with(Plain, make_site)
    launches: dict[str, Any] = handler._launches

    class Begins:
        @property
        def complete(self) -> bool:
            launches[str(len(launches))] = SimpleNamespace(complete=False)
            return False

    launches["first"] = Begins()
    assert handler.alive_thread_count == 1
