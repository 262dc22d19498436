# SPDX-License-Identifier: Apache-2.0
"""Tests of `tests.chaos.served_time`."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.chaos.served_time import Patience, ServedTime


class Service:
    """A clock, and a ZooKeeper that serves or does not."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.serves = True
        self.time = ServedTime(lambda: self.serves, lambda: self.now)
        self.time.look()

    def spend(self, seconds: float, serves: bool) -> None:
        """Looks at the end."""
        self.now += seconds
        self.serves = serves
        self.time.look()


@pytest.fixture
def service() -> Service:
    return Service()


def test_only_time_between_two_good_looks_counts(service: Service) -> None:
    service.spend(0.25, True)
    service.spend(0.25, False)
    service.spend(10.0, False)
    service.spend(0.25, True)
    service.spend(2.0, True)
    assert (service.time.seconds, service.time.seconds_without) == (2.25, 10.5)


@pytest.fixture
def wait(service: Service) -> Callable[[Callable[[], bool], float], bool]:
    """Waits for something with the service's clock; each second that passes is looked at."""

    def wait_for(answered: Callable[[], bool], most: float) -> bool:
        patience = Patience(service.time, 120.0, most)
        while not answered():
            left = patience.left()
            if left <= 0:
                return False
            service.spend(min(left, 1.0), service.serves)
        return True

    return wait_for


def test_patience_ends_with_the_time_that_was_served(
    service: Service, wait: Callable[[Callable[[], bool], float], bool]
) -> None:
    assert not wait(lambda: False, 300.0)
    assert service.now == 1120.0


def test_patience_waits_on_while_nothing_serves(
    service: Service, wait: Callable[[Callable[[], bool], float], bool]
) -> None:
    service.spend(1.0, False)

    def answered() -> bool:
        service.serves = service.now > 1200.0
        return service.now > 1300.0

    assert wait(answered, 300.0)


def test_patience_does_not_wait_for_ever(service: Service, wait: Callable[[Callable[[], bool], float], bool]) -> None:
    service.spend(1.0, False)
    assert not wait(lambda: False, 300.0)
    assert service.now == pytest.approx(1301.0, abs=1.0)
