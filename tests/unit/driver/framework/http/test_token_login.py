# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.framework.http.token_login`."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from nodepool.driver.framework.cloud_errors import CloudAway, LoginRefused
from nodepool.driver.framework.http.token_login import REFUSED_SECONDS, RENEW_SECONDS, TokenLogin
from tests.support.manual_clock import ManualClock

LIFE = 3600.0


class Login(TokenLogin):
    """Answers with what the test wrote: tokens, and errors."""

    def __init__(self, clock: ManualClock, *answers: str | Exception) -> None:
        super().__init__("north", clock)
        self.answers = list(answers)
        self.life = LIFE

    def ask(self) -> tuple[str, float]:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer, self.life

    def token(self) -> str:
        return self.headers()["Authorization"].removeprefix("Bearer ")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def test_renewed_before_its_end(clock: ManualClock) -> None:
    login = Login(clock, "one", "two")
    assert login.token() == login.token() == "one"
    clock.now += LIFE - RENEW_SECONDS - 1
    assert login.token() == "one"
    clock.now += 1
    assert login.token() == "two"


def test_short_life(clock: ManualClock) -> None:
    """At half of it, not at each call."""
    login = Login(clock, "one", "two")
    login.life = 60
    assert login.token() == "one"
    clock.now += 29
    assert login.token() == "one"
    clock.now += 1
    assert login.token() == "two"


def test_away_while_the_token_is_valid(clock: ManualClock) -> None:
    """The present one is used on; somebody asks again after a while."""
    login = Login(clock, "one", CloudAway("no answer"), "two")
    login.token()
    clock.now += LIFE - RENEW_SECONDS
    assert login.token() == login.token() == "one"
    clock.now += REFUSED_SECONDS
    assert login.token() == "two"


def test_away_after_its_end(clock: ManualClock) -> None:
    login = Login(clock, "one", CloudAway("no answer"), "two")
    login.token()
    clock.now += LIFE
    with pytest.raises(CloudAway, match="no answer"):
        login.token()
    assert login.token() == "two"


def test_refused_credentials_are_not_tried_again_at_once(clock: ManualClock) -> None:
    login = Login(clock, LoginRefused("wrong", "401"), "one")
    for _ in range(3):
        with pytest.raises(LoginRefused, match="wrong"):
            login.token()
    clock.now += REFUSED_SECONDS
    assert login.token() == "one"


def test_refused_while_the_token_is_valid(clock: ManualClock) -> None:
    """It works until its end; then nothing does."""
    login = Login(clock, "one", LoginRefused("wrong", "401"), LoginRefused("wrong", "401"))
    login.token()
    clock.now += LIFE - RENEW_SECONDS
    assert login.token() == login.token() == "one"
    clock.now += RENEW_SECONDS
    with pytest.raises(LoginRefused, match="wrong"):
        login.token()


def test_nobody_with_a_valid_token_waits_for_the_next_one(clock: ManualClock) -> None:
    meanwhile: list[str] = []

    class Slow(Login):
        def ask(self) -> tuple[str, float]:
            if self.answers == ["two"]:
                other = threading.Thread(target=lambda: meanwhile.append(self.token()))
                other.start()
                other.join(10)
            return super().ask()

    login = Slow(clock, "one", "two")
    login.token()
    clock.now += LIFE - RENEW_SECONDS
    assert login.token() == "two"
    assert meanwhile == ["one"]


def test_those_without_a_token_wait_for_one_call() -> None:
    asked, go_on = threading.Event(), threading.Event()

    class Slow(Login):
        def ask(self) -> tuple[str, float]:
            asked.set()
            assert go_on.wait(10)
            return super().ask()

    login = Slow(ManualClock(), "one")
    with ThreadPoolExecutor(3) as threads:
        first = threads.submit(login.token)
        assert asked.wait(10)
        others = [threads.submit(login.token) for _ in range(2)]
        go_on.set()
        assert [each.result(10) for each in (first, *others)] == ["one"] * 3


def test_those_who_waited_for_no_answer_do_not_ask_again() -> None:
    """Each call takes until its timeout."""
    asked, go_on, waiting = threading.Event(), threading.Event(), threading.Semaphore(0)

    class Clock(ManualClock):
        def __call__(self) -> float:
            waiting.release()
            return super().__call__()

    class Slow(Login):
        def ask(self) -> tuple[str, float]:
            asked.set()
            assert go_on.wait(10)
            return super().ask()

    clock = Clock()
    login = Slow(clock, CloudAway("no answer"), "one")
    with ThreadPoolExecutor(3) as threads:
        first = threads.submit(login.token)
        assert asked.wait(10)
        # That one has read the clock twice; each of the others does it once before it waits.
        others = [threads.submit(login.token) for _ in range(2)]
        assert all(waiting.acquire(timeout=10) for _ in range(2 + len(others)))
        clock.now += 60
        go_on.set()
        for each in (first, *others):
            with pytest.raises(CloudAway, match="no answer"):
                each.result(10)
    assert login.token() == "one"


def test_refused_by_many_calls_renewed_once(clock: ManualClock) -> None:
    login = Login(clock, "one", "two")
    old = login.headers()
    for _ in range(3):
        login.refused(old)
        assert login.token() == "two"


def test_token_that_the_cloud_refuses(clock: ManualClock) -> None:
    """It is not used on, even if there is no other."""
    login = Login(clock, "one", CloudAway("no answer"), "two")
    login.token()
    login.refused(login.headers())
    with pytest.raises(CloudAway):
        login.token()
    assert login.token() == "two"
