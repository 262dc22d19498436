# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.framework.http.token_login`."""

from __future__ import annotations

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


def test_token_that_the_cloud_refuses(clock: ManualClock) -> None:
    """It is not used on, even if there is no other."""
    login = Login(clock, "one", CloudAway("no answer"), "two")
    login.token()
    login.refused()
    with pytest.raises(CloudAway):
        login.token()
    assert login.token() == "two"
