# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.statemachine.creation_machine`, step by step."""

from __future__ import annotations

import sys

import pytest

from nodepool.driver.statemachine import creation_hooks, creation_machine
from nodepool.driver.statemachine.lost_creations import CreationKey
from nodepool.exceptions import (
    CloudUnavailableException,
    LaunchError,
    LaunchStatusException,
    QuotaException,
)
from tests.support.manual_executor import ManualExecutor
from tests.unit.driver.statemachine.creation_rig import (
    KeyedLaunch,
    Launch,
    advance,
    away,
    cloud_that_creates,
    list_and_advance,
)
from tests.unit.driver.statemachine.instances import NODE, PROVIDER, StubInstances, seen


@pytest.fixture
def cloud() -> StubInstances:
    return cloud_that_creates()


def test_one_instance(cloud: StubInstances) -> None:
    """From the call to the instance; L-3: the id is there as soon as the cloud gave it."""
    launch = Launch(cloud)
    assert advance(launch) is None
    assert (launch.external_id, launch.state, launch.complete) == ("a", "building", False)
    cloud.show(seen("a", "booting"))
    assert advance(launch) is None
    cloud.show(seen("a"))
    assert advance(launch).external_id == "a"
    assert launch.complete
    assert cloud.inventory._pause() == float("inf"), "nobody waits any more"
    assert launch.keys == [CreationKey(PROVIDER, NODE, 1)]


def test_attempts(cloud: StubInstances) -> None:
    """The framework says which one it is."""
    launch = Launch(cloud)
    launch.attempt = 2
    advance(launch)
    assert launch.keys == [CreationKey(PROVIDER, NODE, 2)]


def test_library_that_wants_to_end_the_process(cloud: StubInstances) -> None:
    """It is an error of the attempt, and leaves nothing that counts against the limits for ever."""

    def leave() -> str:
        sys.exit("no configuration")

    cloud.answers["create"] = leave
    launch = Launch(cloud)
    with pytest.raises(RuntimeError, match=r"sys\.exit\(no configuration\)"):
        advance(launch)
    assert cloud.creations.unanswered(lambda _: False) == []
    assert cloud.inventory._pause() == float("inf")


def test_does_not_block(cloud: StubInstances) -> None:
    """reference/driver 8: the call is made in another thread; its end wakes the machine."""
    executor = cloud.creators = ManualExecutor(eager=False)  # type: ignore[assignment]
    launch = Launch(cloud)
    woken: list[int] = []
    launch.wake = lambda: woken.append(1)
    advance(launch)
    assert (launch.state, launch.keys, woken) == ("submitting", [], [])
    executor.run()
    assert woken == [1]
    advance(launch)
    assert launch.state == "building"


def test_broken(cloud: StubInstances) -> None:
    """The id is kept, so that it is deleted."""
    launch = Launch(cloud)
    advance(launch)
    cloud.show(seen("a", "broken"))
    with pytest.raises(LaunchStatusException, match="it is broken"):
        advance(launch)
    assert launch.external_id == "a"
    assert cloud.inventory._pause() == float("inf")


@pytest.mark.parametrize(
    ("error", "expected"), [(LaunchError("no room"), QuotaException), (KeyError("x"), KeyError), (away(), None)]
)
def test_refused(cloud: StubInstances, error: Exception, expected: type[Exception] | None) -> None:
    """The driver says what a refusal means; an error without an answer is not one."""
    cloud.answers["create"] = error
    launch = Launch(cloud)
    if expected is None:
        advance(launch)
        assert launch.state == "searching"
        return
    with pytest.raises(expected):
        advance(launch)
    assert cloud.creations._nodes == {}


def test_cloud_is_away(cloud: StubInstances) -> None:
    """A call that was not sent made nothing: it is a failure at once."""
    cloud.answers["create"] = away(maybe_done=False)
    with pytest.raises(CloudUnavailableException):
        advance(KeyedLaunch(cloud))
    assert cloud.creations._nodes == {}


class TestRepeated:
    """A cloud that knows a creation by its key: it is sent again until there is an answer."""

    @pytest.mark.parametrize("error", [away(), ConnectionResetError("reset")])
    def test_until_it_is_answered(self, cloud: StubInstances, error: Exception) -> None:
        cloud.answers["create"] = [error, error, "a"]
        launch = KeyedLaunch(cloud)
        advance(launch)
        assert (launch.state, launch.next_advance_seconds) == ("repeating", 0.5)
        advance(launch, 0.5)
        assert (launch.state, launch.next_advance_seconds) == ("repeating", 1.0)
        advance(launch, 0.5)
        assert cloud.count("create") == 2, "too soon"
        advance(launch, 0.5)
        assert (launch.state, launch.external_id) == ("building", "a")
        assert launch.keys == [CreationKey(PROVIDER, NODE, 1)] * 3
        assert cloud.creations.unanswered(lambda _: False) == []

    def test_not_for_ever(self, cloud: StubInstances) -> None:
        """Then the framework must know; what may have been made counts and is searched for."""
        cloud.answers["create"] = away()
        cloud.answers["list"] = away("503")
        launch = KeyedLaunch(cloud)
        for _ in range(creation_machine.REPEATS + 1):
            advance(launch, 5)
        assert launch.state == "searching"
        assert len(cloud.creations.unanswered(lambda _: False)) == 1
        for _ in range(creation_machine.SEARCH_FAILURES):
            cloud.inventory.poll(complete=True)
        with pytest.raises(CloudUnavailableException, match="timed out") as raised:
            advance(launch)
        assert not raised.value.searched
        assert cloud.count("create") == creation_machine.REPEATS + 1

    def test_refused_the_second_time(self, cloud: StubInstances) -> None:
        """Other parameters, or no room any more: that says nothing of what the first call made."""
        cloud.answers["create"] = [away(), LaunchError("no room")]
        launch = KeyedLaunch(cloud)
        advance(launch)
        advance(launch, 1)
        assert launch.state == "searching"
        assert len(cloud.creations.unanswered(lambda _: False)) == 1
        cloud.show(seen("found", "booting"))
        advance(launch)
        assert (launch.state, launch.external_id) == ("building", "found")
        assert cloud.creations.unanswered(lambda _: False) == []

    def test_not_wanted_any_more(self, cloud: StubInstances) -> None:
        """While the node is deleted the creation is not repeated: that could make an instance."""
        cloud.answers["create"] = away()
        launch = KeyedLaunch(cloud)
        advance(launch)
        launch.wanted = lambda: False
        advance(launch, 1)
        assert (cloud.count("create"), launch.state) == (1, "searching")


class TestLostAnswer:
    """A cloud that does not know keys: the instance is looked for. Never two for one node."""

    @pytest.fixture
    def cloud(self, cloud: StubInstances) -> StubInstances:
        cloud.answers["create"] = away()
        return cloud

    def test_found(self, cloud: StubInstances) -> None:
        """The instance that was made all the same is adopted; that of another node is not."""
        launch = Launch(cloud)
        advance(launch)
        cloud.show(seen("other", node_id="7"), seen("found", "booting"))
        advance(launch)
        assert (launch.state, launch.external_id) == ("building", "found")
        cloud.show(seen("found"))
        assert advance(launch).external_id == "found"
        assert cloud.count("create") == 1

    def test_hidden_for_a_while(self, cloud: StubInstances) -> None:
        """One list does not prove that there is none."""
        launch = Launch(cloud)
        advance(launch)
        list_and_advance(launch, 3)
        assert launch.state == "searching"
        cloud.show(seen("found"))
        advance(launch)
        assert launch.external_id == "found"

    def test_not_found(self, cloud: StubInstances) -> None:
        """It is a failed attempt; an instance that comes later is deleted, without touching that of the next one."""
        launch = Launch(cloud)
        advance(launch)
        with pytest.raises(CloudUnavailableException, match="timed out") as raised:
            list_and_advance(launch, 20)
        assert raised.value.searched
        cloud.answers["create"] = "b"
        again = Launch(cloud)
        advance(again)
        cloud.show(seen("late"), seen("b"))
        assert cloud.count("delete") == 1
        assert again.external_id == "b"

    def test_after_an_outage(self, cloud: StubInstances) -> None:
        """Lists that failed before the creation do not end the search."""
        cloud.answers["list"] = away("503")
        for _ in range(5):
            cloud.inventory.poll(complete=True)
        launch = Launch(cloud)
        advance(launch)
        assert launch.state == "searching"
        cloud.show(seen("found"))
        advance(launch)
        assert launch.external_id == "found"

    def test_nothing_is_listed(self, cloud: StubInstances) -> None:
        """The search does not last for ever."""
        launch = Launch(cloud)
        advance(launch)
        with pytest.raises(CloudUnavailableException):
            advance(launch, 10 * creation_machine.SEARCH_SECONDS)

    def test_lists_that_lag(self, cloud: StubInstances, monkeypatch: pytest.MonkeyPatch) -> None:
        """Where lists are late the search takes longer by that."""
        monkeypatch.setattr(StubInstances, "lag_seconds", 10.0)
        launch = Launch(cloud)
        advance(launch)
        list_and_advance(launch, 14)
        assert launch.state == "searching"
        with pytest.raises(CloudUnavailableException):
            list_and_advance(launch, 3)


class TestAbsent:
    """An instance that is in no list."""

    def test_deleted_by_somebody(self, cloud: StubInstances) -> None:
        launch = Launch(cloud)
        advance(launch)
        cloud.show(seen("a", "gone"))
        with pytest.raises(LaunchStatusException, match="deleted by somebody else"):
            advance(launch)

    def test_asked_for(self, cloud: StubInstances) -> None:
        """Lists may hide it: it is asked for itself before it is given up."""
        cloud.answers["get"] = [seen("a"), away(), LookupError("it is broken")]
        launch = Launch(cloud)
        advance(launch)
        list_and_advance(launch, 4, creation_machine.ABSENT_SECONDS + 1)
        assert cloud.count("get") == 2
        with pytest.raises(LookupError):
            list_and_advance(launch, 2, creation_machine.ABSENT_SECONDS + 1)

    def test_gone(self, cloud: StubInstances) -> None:
        launch = Launch(cloud)
        advance(launch)
        with pytest.raises(LaunchStatusException, match="instance a was deleted by somebody else"):
            list_and_advance(launch, 2, creation_machine.ABSENT_SECONDS + 1)
        assert cloud.inventory.is_gone("a")

    def test_cloud_that_cannot_be_asked(self, cloud: StubInstances) -> None:
        """Lists are all there is: launch-timeout ends the attempt."""
        cloud.answers["get"] = NotImplementedError()
        launch = Launch(cloud)
        advance(launch)
        list_and_advance(launch, 6, creation_machine.ABSENT_SECONDS + 1)
        assert launch.state == "building"


def test_given_up_before_its_turn(cloud: StubInstances) -> None:
    """A creation that waited too long for its turn is not sent any more: nobody would know of the instance."""
    executor = cloud.creators = ManualExecutor(eager=False)  # type: ignore[assignment]
    advance(Launch(cloud))
    cloud.clock.now += creation_hooks.GIVEN_UP_SECONDS + 1
    executor.run()
    assert cloud.count("create") == 0
    assert cloud.creations.unanswered(lambda _: False) == []


def test_given_up_before_the_answer(cloud: StubInstances) -> None:
    """An instance that comes so late that nobody waits any more is deleted."""
    executor = cloud.creators = ManualExecutor(eager=False)  # type: ignore[assignment]
    advance(Launch(cloud))

    def late() -> str:
        cloud.clock.now += creation_hooks.GIVEN_UP_SECONDS + cloud.call_seconds + 1
        return "a"

    cloud.answers["create"] = late
    executor.run()
    assert cloud.count("delete") == 1


def test_answered_after_it_was_given_up(cloud: StubInstances) -> None:
    """L-4: launch-timeout ended the attempt before the answer came: its instance goes when the next one is there."""
    executor = cloud.creators = ManualExecutor(eager=False)  # type: ignore[assignment]
    advance(Launch(cloud))
    executor.run()
    cloud.answers["create"] = "b"
    again = Launch(cloud)
    advance(again)
    executor.run()
    assert cloud.count("delete") == 0
    cloud.show(seen("b", "booting"))
    advance(again)
    cloud.show(seen("a"), seen("b", "booting"))
    assert (again.external_id, cloud.count("delete")) == ("b", 1)


def test_not_wanted_any_more(cloud: StubInstances) -> None:
    """Fencing: a launcher that was stopped past its session makes nothing for a node of somebody else."""
    launch = Launch(cloud)
    launch.wanted = lambda: False
    with pytest.raises(LaunchStatusException, match="not wanted any more"):
        advance(launch)
    assert cloud.count("create") == 0


def test_late_instance_while_the_next_creation_is_under_way(cloud: StubInstances) -> None:
    """L-4: it may be the next one's; when that one has an instance of its own, the late one is deleted at once."""
    cloud.creations.given_up(cloud.creations.begin(CreationKey(PROVIDER, NODE, 1)))
    cloud.creators = creators = ManualExecutor(eager=False)  # type: ignore[assignment]
    cloud.answers["create"] = "own"
    machine = Launch(cloud)
    machine.attempt = 2
    machine.advance()
    cloud.show(seen("late"))
    assert cloud.count("delete") == 0
    creators.run()
    machine.advance()
    assert machine.external_id == "own"
    assert cloud.count("delete") == 1
