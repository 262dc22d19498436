# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.statemachine.finder`: is there an instance of this node?"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from nodepool.driver.statemachine import Instance, finder, metadata
from nodepool.driver.statemachine.finder import InstanceFinder
from nodepool.exceptions import CloudUnavailableException
from tests.support.manual_clock import ManualClock
from tests.support.manual_executor import ManualExecutor

PAUSES = (1.0, 3.0)


@pytest.fixture(autouse=True)
def _pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finder, "LOOK_SECONDS", PAUSES)


def instance(external_id: str | None, node_id: str = "1", *, provider: str = "somewhere") -> Instance:
    made = Instance()
    made.external_id = external_id
    made.metadata = dict(metadata.for_node(node_id, "main", provider))
    return made


class Cloud:
    """Lists ``instances``, or raises ``error``."""

    def __init__(self) -> None:
        self.instances: list[Instance] = []
        self.error: Exception | None = None
        self.lists = 0
        self.executor = ManualExecutor()
        self.woken = 0
        self.clock = ManualClock()

    def list_instances(self) -> list[Instance]:
        self.lists += 1
        if self.error is not None:
            raise self.error
        return self.instances

    def wake(self) -> None:
        self.woken += 1

    def finder(self, lag_seconds: float = 0.0) -> InstanceFinder:
        return InstanceFinder("somewhere", self.list_instances, self.executor, lag_seconds, self.clock)


@pytest.fixture
def cloud() -> Cloud:
    return Cloud()


def test_found(cloud: Cloud) -> None:
    """D-4: by their metadata; not those of other nodes and providers, not deleted ones, and not what has no id."""
    deleted = instance("c")
    deleted.deleted = True
    others = [instance("d", "2"), instance("e", provider="elsewhere"), deleted, instance(None)]
    cloud.instances = [instance("a"), instance("b"), *others]
    search = cloud.finder().search("1", cloud.wake, may_be_late=True)
    assert search.step() is None
    assert search.found == ["a", "b"]


@pytest.mark.parametrize(
    ("late", "lag", "pauses"),
    [(False, 0.0, []), (True, 0.0, [1.0, 3.0]), (True, 20.0, [1.0, 3.0, 20.0]), (False, 20.0, [])],
)
def test_looks_again(cloud: Cloud, late: bool, lag: float, pauses: list[float]) -> None:
    """L-4: what has no answer may show late, and where lists are late once more after that."""
    search = cloud.finder(lag).search("1", cloud.wake, may_be_late=late)
    for pause in pauses:
        assert search.step() == pause
        cloud.clock.now += pause
    assert search.step() is None
    assert search.found == []


def test_woken_in_a_pause(cloud: Cloud) -> None:
    """What wakes a launch, such as the end of a creation that was given up, does not make the search shorter."""
    search = cloud.finder().search("1", cloud.wake, may_be_late=True)
    assert search.step() == 1.0
    cloud.clock.now += 0.25
    assert search.step() == 0.75
    assert cloud.lists == 1
    cloud.clock.now += 0.75
    assert search.step() == 3.0
    assert cloud.lists == 2


def test_trouble(cloud: Cloud) -> None:
    """An error reaches who asked; then it is asked once more."""
    cloud.error = CloudUnavailableException("503")
    search = cloud.finder().search("1", cloud.wake, may_be_late=False)
    with pytest.raises(CloudUnavailableException):
        search.step()
    cloud.error = None
    assert search.step() is None


def test_one_list_for_all(cloud: Cloud) -> None:
    """Those who ask while a list is under way get the next one, together."""
    cloud.executor.eager = False
    found = cloud.finder()
    searches = [found.search(str(number), cloud.wake, may_be_late=False) for number in range(5)]
    asked_meanwhile: list[object] = []

    def list_once(plain: Callable[[], list[Instance]] = cloud.list_instances) -> list[Instance]:
        if not asked_meanwhile:
            asked_meanwhile.append(found.find("9"))
        return plain()

    found._list = list_once
    assert all(search.step() is not None for search in searches)
    cloud.executor.run()
    assert all(search.step() is None for search in searches)
    assert (cloud.lists, cloud.woken) == (2, 5)
