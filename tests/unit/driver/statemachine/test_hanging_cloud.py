# SPDX-License-Identifier: Apache-2.0
"""A cloud that does not answer from the first question on must not hold up the thread of a pool (rule F-5)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from nodepool.driver.statemachine.known import Patience
from tests.support.machine_driver import MachineAdapter
from tests.support.wait import DEADLINE_SECONDS, wait_for
from tests.unit.driver.statemachine.conftest import MakeSite

QUESTIONS = ("getQuotaLimits", "getQuotaForLabel", "labelReady", "getAZs")


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """The cloud answers when it is set."""
    event = threading.Event()

    def hanging(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            event.wait(DEADLINE_SECONDS)
            return original(*arguments)

        return call

    for name in QUESTIONS:
        monkeypatch.setattr(MachineAdapter, name, hanging(getattr(MachineAdapter, name)))
    yield event
    event.set()


def test_pool_waits_once(make_site: MakeSite, monkeypatch: pytest.MonkeyPatch, answers: threading.Event) -> None:
    """Each question is waited for once, all out of one patience; meanwhile nothing is declined and nothing launched."""
    waits: list[Patience] = []

    def wait(patience: Patience, condition: threading.Condition, until: Callable[[], bool]) -> None:
        waits.append(patience)

    with monkeypatch.context() as patch:
        patch.setattr(Patience, "wait", wait)
        site = make_site()
        pool = site.config.pools["main"]
        for _ in range(3):
            handler = site.provider.getRequestHandler(site.worker, site.worker.submit("small"))
            assert handler.getDeclinedReasons() == []
            assert not handler.hasRemainingQuota("small")
            assert list(site.provider.zones(pool)) == [None]
    assert len(waits) <= len(QUESTIONS)
    assert all(patience is site.provider.patience for patience in waits)
    answers.set()
    wait_for("there is room", lambda: site.provider.roomForOne(pool, "small"))
