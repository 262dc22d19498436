# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.statemachine.instance_cloud`."""

from __future__ import annotations

import threading
from collections.abc import Iterable

import pytest

from nodepool.driver.statemachine.instance_cloud import InstanceCloud
from nodepool.driver.statemachine.lost_creations import Creation, CreationKey
from nodepool.exceptions import LaunchError, NotFound
from tests.unit.driver.statemachine.instances import NODE, PROVIDER, Seen, StubInstances, seen


class ListsOnly(InstanceCloud[Seen]):
    """The least that a driver says."""

    def __init__(self) -> None:
        super().__init__(PROVIDER)
        self.closed = False

    def list_instances(self, since: str | None) -> Iterable[Seen]:
        assert since is None
        return [seen("a")]

    def delete_instance(self, record_id: str) -> None:
        raise NotFound(record_id)

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (None, "made by a call that was not answered, deleting it"),
        (NotFound("late"), "is gone already"),
        (LaunchError("no"), "could not be deleted: no"),
    ],
)
def test_strays(answer: Exception | None, text: str, caplog: pytest.LogCaptureFixture) -> None:
    """What shows up after its creation was given up is deleted; if that fails the search for leaks comes by."""
    caplog.set_level("DEBUG")
    cloud = StubInstances()
    cloud.answers["delete"] = answer
    cloud.creations.given_up(cloud.creations.begin(CreationKey(PROVIDER, NODE, 1)))
    cloud.show(seen("late"), seen("theirs", provider="elsewhere"))
    assert cloud.count("delete") == 1
    assert text in caplog.text


def pause(cloud: StubInstances) -> float:
    """Seconds until the thread would list."""
    return cloud.inventory._pause()


def lose(cloud: StubInstances) -> Creation:
    """A creation that was sent and got no answer."""
    creation = cloud.creations.begin(CreationKey(PROVIDER, NODE, 1))
    cloud.creations.sent(creation)
    cloud.creations.not_answered(creation)
    return creation


def test_room_of_a_creation_that_made_nothing() -> None:
    """Q-3: whoever waits for it is told, without asking again; lists are made for that although nobody else waits."""
    cloud = StubInstances(lists_changes=False)
    told: list[int] = []
    cloud.on_room = lambda: told.append(len(cloud.creations.unanswered(lambda _: False)))
    lose(cloud)
    assert pause(cloud) == float("inf")
    assert len(cloud.unanswered()) == 1
    assert pause(cloud) <= 0
    cloud.show()
    assert told == [0]
    assert cloud.unanswered() == []
    assert pause(cloud) == float("inf")
    assert told == [0], "once"


def test_room_is_told_of_when_somebody_else_listed() -> None:
    """The list was made before anybody asked for room: all the others must hear of it, too."""
    cloud = StubInstances(lists_changes=False)
    told: list[bool] = []
    cloud.on_room = lambda: told.append(True)
    lose(cloud)
    cloud.show()
    assert told == []
    assert cloud.unanswered() == []
    assert told == [True]


def test_lists_for_a_lost_creation_wait_for_what_lists_lack(monkeypatch: pytest.MonkeyPatch) -> None:
    """An earlier list would prove nothing."""
    monkeypatch.setattr(StubInstances, "lag_seconds", 5.0)
    cloud = StubInstances(lists_changes=False)
    lose(cloud)
    cloud.unanswered()
    assert pause(cloud) == 5.0


def test_lists_only() -> None:
    """A cloud that can be asked for nothing else: everything is listed, and nothing is asked for."""
    cloud = ListsOnly()
    assert [record.id for record in cloud.inventory.all(max_age=0)] == ["a"]
    cloud.inventory.refresh(complete=False)
    with pytest.raises(NotImplementedError):
        cloud.get_instance("a")
    with pytest.raises(NotImplementedError):
        cloud.changes_since("0")
    cloud.stop()
    assert cloud.closed


def test_stop() -> None:
    """Threads end, and calls that wait for their turn are dropped; those under way are waited for."""
    cloud = ListsOnly()
    begun, go_on, after, dropped = (threading.Event() for _ in range(4))

    def call() -> None:
        begun.set()
        go_on.wait(30)

    for _ in range(cloud.other_threads):
        cloud.others.submit(call)
    cloud.others.submit(after.set).add_done_callback(lambda _: dropped.set())
    assert begun.wait(30)
    listed = threading.Event()
    waiter = cloud.inventory.wait_for("boot", listed.set)
    assert listed.wait(30)
    cloud.inventory.done(waiter)
    stopping = threading.Thread(target=cloud.stop)
    stopping.start()
    assert dropped.wait(30)
    go_on.set()
    stopping.join(30)
    assert not stopping.is_alive()
    assert not after.is_set()
