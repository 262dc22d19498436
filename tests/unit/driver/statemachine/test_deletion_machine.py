# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.statemachine.deletion_machine`, step by step (X-4)."""

from __future__ import annotations

import itertools

import pytest

from nodepool.driver.statemachine import deletion_machine
from nodepool.exceptions import CloudUnavailableException, LaunchError, NotFound
from tests.support.manual_executor import ManualExecutor
from tests.unit.driver.statemachine.deletion_rig import AWAY, deletion_of
from tests.unit.driver.statemachine.instances import StubInstances, seen


@pytest.fixture
def cloud() -> StubInstances:
    return StubInstances()


def test_one_instance(cloud: StubInstances) -> None:
    """One call, and the shared list says when it is over."""
    cloud.show(seen("a"))
    deletion = deletion_of(cloud)
    deletion.advance()
    assert (deletion.state, cloud.count("delete")) == ("waiting", 1)
    cloud.show(seen("a", "deleting"))
    deletion.advance()
    assert deletion.state == "waiting"
    cloud.show(seen("a", "gone"), complete=False)
    deletion.advance()
    assert (deletion.state, deletion.complete) == ("complete", True)
    assert (cloud.count("delete"), cloud.count("get")) == (1, 0)
    assert cloud.inventory._pause() == float("inf"), "nobody waits any more"


def test_instance_that_not_all_of_the_cloud_knows_yet(cloud: StubInstances, monkeypatch: pytest.MonkeyPatch) -> None:
    """X-4: just after its creation, "there is none" proves nothing; it is ordered again when that must be known."""
    monkeypatch.setattr(StubInstances, "lag_seconds", 5.0)
    monkeypatch.setattr(StubInstances, "new_may_be_unknown", True)
    cloud.answers["delete"] = [NotFound("a"), None]
    deletion = deletion_of(cloud)
    deletion.advance()
    assert (deletion.state, cloud.count("delete")) == ("deleting", 1)
    assert not cloud.inventory.is_gone("a")
    cloud.clock.now += 4
    deletion.advance()
    assert cloud.count("delete") == 1
    cloud.clock.now += 1
    deletion.advance()
    assert (deletion.state, cloud.count("delete")) == ("waiting", 2)


def test_instance_that_is_unknown_for_longer(cloud: StubInstances, monkeypatch: pytest.MonkeyPatch) -> None:
    """X-4: an instance that the cloud does not know after that time is gone."""
    monkeypatch.setattr(StubInstances, "lag_seconds", 5.0)
    monkeypatch.setattr(StubInstances, "new_may_be_unknown", True)
    cloud.answers["delete"] = NotFound("a")
    deletion = deletion_of(cloud)
    deletion.advance()
    cloud.clock.now += 5
    deletion.advance()
    assert (deletion.complete, cloud.count("delete")) == (True, 2)
    assert cloud.inventory.is_gone("a")


def test_deletion_that_was_accepted_before(cloud: StubInstances, monkeypatch: pytest.MonkeyPatch) -> None:
    """X-4: once the cloud has known it, "there is none" is the end."""
    monkeypatch.setattr(StubInstances, "lag_seconds", 5.0)
    monkeypatch.setattr(StubInstances, "new_may_be_unknown", True)
    cloud.answers["delete"] = [None, NotFound("a")]
    deletion = deletion_of(cloud)
    deletion.advance()
    for _ in range(20):
        cloud.show(seen("a"))
        deletion.advance()
    assert (deletion.complete, cloud.count("delete")) == (True, 2)


def test_is_woken_at_the_end(cloud: StubInstances) -> None:
    """Not when the cloud has begun: there is nothing to do."""
    woken: list[str] = []
    deletion = deletion_of(cloud)
    deletion.advance()
    deletion.wake = lambda: woken.append(deletion.state)
    cloud.show(seen("a", "deleting"))
    assert woken == []
    cloud.show(seen("a", "gone"), complete=False)
    assert woken == ["waiting"]


def test_is_woken_when_it_has_to_look(cloud: StubInstances) -> None:
    """The instance is in no list, or it works again."""
    woken: list[str] = []
    deletion = deletion_of(cloud)
    deletion.wake = lambda: woken.append(deletion.state)
    for records in ([seen("a", "deleting")], [seen("a")], []):
        deletion.advance()
        woken.clear()
        cloud.show(*records)
        assert bool(woken) is (records != [seen("a", "deleting")])


@pytest.mark.parametrize("record_id", [None, ""])
def test_nothing_to_delete(cloud: StubInstances, record_id: str | None) -> None:
    """reference/driver 9."""
    deletion = deletion_of(cloud, record_id)
    deletion.advance()
    assert deletion.complete
    assert cloud.calls == []


def test_gone_already(cloud: StubInstances) -> None:
    """X-4: an id that does not exist is no error, and is not asked for twice."""
    cloud.answers["delete"] = NotFound("a")
    for _ in range(2):
        deletion = deletion_of(cloud)
        deletion.advance()
        assert deletion.complete
    assert cloud.count("delete") == 1


def test_comes_after_it_was_not_there(cloud: StubInstances) -> None:
    """CM-7: where ids are names, an order that was given up may be late. A list that shows it later counts."""
    cloud.answers["delete"] = NotFound("a")
    news: list[str] = []
    cloud.inventory.on_news = lambda records: news.extend(record.id for record in records)
    deletion = deletion_of(cloud)
    deletion.advance()
    assert deletion.complete
    cloud.answers["list"] = [seen("a")]
    # A list that began at that moment may be older.
    cloud.inventory.refresh(complete=True)
    assert cloud.inventory.get("a") is None
    cloud.clock.now += 1
    cloud.inventory.refresh(complete=True)
    assert cloud.inventory.get("a") is not None
    assert news == ["a"]


def test_does_not_block(cloud: StubInstances) -> None:
    deletion = deletion_of(cloud)
    cloud.others = ManualExecutor(eager=False)  # type: ignore[assignment]
    deletion.advance()
    assert (deletion.state, cloud.count("delete")) == ("deleting", 0)


def test_swallowed(cloud: StubInstances) -> None:
    """A deletion that has no effect is sent again, later each time."""
    cloud.show(seen("a"))
    deletion = deletion_of(cloud)
    times = []
    for _ in range(100):
        before = cloud.count("delete")
        deletion.advance()
        if cloud.count("delete") > before:
            times.append(cloud.clock.now)
        cloud.show(seen("a"))
    pauses = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert pauses[:3] == [pytest.approx(wanted, abs=1.1) for wanted in (2, 4, 8)]
    assert pauses == sorted(pauses)
    assert max(pauses) <= deletion_machine.RESEND.longest_seconds + 1
    assert not deletion.complete


def test_slow_lists(cloud: StubInstances) -> None:
    """Nothing is repeated, and nobody spins, while there is no list yet that could show the effect."""
    cloud.show(seen("a"))
    deletion = deletion_of(cloud)
    deletion.advance()
    cloud.clock.now += deletion_machine.BEGUN_RESEND_SECONDS
    deletion.advance()
    assert (deletion.state, cloud.count("delete")) == ("waiting", 1)
    assert deletion.next_advance_seconds == deletion_machine.UNLISTED_SECONDS
    cloud.show(seen("a"))
    deletion.advance()
    assert cloud.count("delete") == 2


def test_lists_that_lag(cloud: StubInstances, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a list shows that may be older than the deletion is no reason to repeat it either."""
    monkeypatch.setattr(StubInstances, "lag_seconds", 10.0)
    cloud.show(seen("a"))
    deletion = deletion_of(cloud)
    deletion.advance()
    accepted_at = cloud.clock.now
    cloud.show(seen("a"))
    deletion.advance()
    # It is not looked at either before a list can say so.
    assert deletion.next_advance_seconds == pytest.approx(accepted_at + 10 - cloud.clock.now)
    while cloud.count("delete") == 1:
        assert cloud.clock.now <= accepted_at + 12
        deletion.advance()
        cloud.show(seen("a"))
    assert cloud.clock.now > accepted_at + 10


def test_under_way(cloud: StubInstances) -> None:
    """One that the cloud works on is left in peace for a minute; else it is sent again soon."""
    deletion = deletion_of(cloud)
    for _ in range(50):
        deletion.advance()
        cloud.show(seen("a", "deleting"))
    assert cloud.count("delete") == 1
    cloud.show(seen("a"))
    deletion.advance()
    assert cloud.count("delete") == 2


def test_errors_are_tried_again(cloud: StubInstances) -> None:
    """The cloud is away, or busy with another operation on the instance."""
    cloud.answers["delete"] = [AWAY, LaunchError("busy"), OSError("reset"), None]
    deletion = deletion_of(cloud)
    pauses = []
    while deletion.state != "waiting":
        deletion.advance()
        pauses.append(deletion.next_advance_seconds)
        cloud.clock.now += pauses[-1] or 0
    assert pauses[:3] == [pytest.approx(wanted) for wanted in (0.5, 1, 2)]
    assert cloud.count("delete") == 4


def test_cloud_is_away(cloud: StubInstances) -> None:
    """After some attempts it is an error, so that the circuit breaker can open."""
    cloud.answers["delete"] = AWAY
    deletion = deletion_of(cloud)
    for _ in range(deletion_machine.AWAY_ANSWERS - 1):
        deletion.advance()
        cloud.clock.now += 60
    with pytest.raises(CloudUnavailableException):
        deletion.advance()
    assert cloud.count("delete") == deletion_machine.AWAY_ANSWERS


@pytest.mark.parametrize("error", [LaunchError("not yours"), KeyError("x")])
def test_refusal_is_an_error(cloud: StubInstances, error: Exception) -> None:
    """What will never work is told to the framework."""
    cloud.answers["delete"] = error
    with pytest.raises(type(error)):
        deletion_of(cloud).advance()
    assert cloud.inventory._pause() == float("inf")


class TestWhatBelongsToIt:
    """Some things go before the instance, and some after it."""

    def test_order(self, cloud: StubInstances) -> None:
        cloud.answers.update({"before": None, "after": None, "delete": NotFound("a")})
        deletion = deletion_of(cloud)
        deletion.advance()
        assert deletion.complete
        assert cloud.calls == ["before", "delete", "after"]

    @pytest.mark.parametrize("name", ["before", "after"])
    def test_trouble(self, cloud: StubInstances, name: str) -> None:
        """While the cloud is away it is tried again; a refusal does not keep the rest; what is gone is fine."""
        cloud.answers.update({name: [AWAY, LaunchError("no")], "delete": NotFound("a")})
        deletion = deletion_of(cloud)
        deletion.advance()
        assert deletion.next_advance_seconds == 0.5
        assert deletion.state != "complete"
        cloud.clock.now += 1
        deletion.advance()
        assert deletion.complete
        assert (cloud.count(name), cloud.count("delete")) == (2, 1)

    @pytest.mark.parametrize("name", ["before", "after"])
    def test_gone(self, cloud: StubInstances, name: str) -> None:
        cloud.answers.update({name: NotFound("it"), "delete": NotFound("a")})
        deletion = deletion_of(cloud)
        deletion.advance()
        assert deletion.complete

    @pytest.mark.parametrize("name", ["before", "after"])
    def test_error_of_the_driver(self, cloud: StubInstances, name: str) -> None:
        cloud.answers.update({name: KeyError("x"), "delete": NotFound("a")})
        with pytest.raises(KeyError):
            deletion_of(cloud).advance()
