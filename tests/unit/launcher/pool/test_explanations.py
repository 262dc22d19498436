# SPDX-License-Identifier: Apache-2.0
"""Why requests wait in the queue, and why they were declined, without ZooKeeper."""

from __future__ import annotations

import pytest

from nodepool.launcher.pool import desk as explanations_module
from nodepool.launcher.pool.desk import MAX_DECLINED, Explanations
from nodepool.model import reasons
from nodepool.plan.queue import RequestKind
from nodepool.plan.request_stage import Stage
from tests.support.manual_clock import ManualClock

KIND = RequestKind(("small",), None, frozenset(), None, True, False)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    clock = ManualClock()
    monkeypatch.setattr(explanations_module, "wall_time", clock)
    return clock


def test_news(clock: ManualClock) -> None:
    """A reason is news once; its time is that of the first pass in which its code was given."""
    explanations = Explanations()
    full = [reasons.quota_used_up("pool main", "cores", limit=20, used=used, needed=4) for used in (20, 19)]
    begun, seen = clock.now, []
    for reason in (full[0], full[0], full[1], reasons.POOL_PAUSED):
        explanations.begin_pass()
        explanations.waits(KIND, reason)
        seen.append([told.text for _, told in explanations.news()])
        assert explanations.of_kind(KIND).since == (clock.now if reason is reasons.POOL_PAUSED else begun)
        clock.pass_seconds(10.0)
    assert seen == [[full[0].text], [], [full[1].text], [reasons.POOL_PAUSED.text]]


def test_between_two_passes(clock: ManualClock) -> None:
    """While a pass judges the kinds, others read what was said before."""
    explanations = Explanations()
    assert explanations.of_kind(KIND).reason is reasons.NEXT_PASS
    explanations.waits(KIND, reasons.POOL_PAUSED)
    explanations.begin_pass()
    assert explanations.of_kind(KIND).reason is reasons.POOL_PAUSED
    explanations.begin_pass()
    assert explanations.of_kind(KIND).reason is reasons.NEXT_PASS


def test_declined(clock: ManualClock) -> None:
    """The last ones, each once; nothing is kept of what is gone."""
    explanations = Explanations()
    for number in range(MAX_DECLINED + 5):
        explanations.declined(str(number), reasons.IMAGE_MISSING)
    explanations.declined("7", reasons.POOL_DISABLED)
    found = explanations.last_declined()
    assert len(found) == MAX_DECLINED
    assert found[-1] == ("7", Stage.DONE, reasons.POOL_DISABLED, clock.now)
    assert explanations.of_declined("0") is None
    explanations.forget("7")
    assert explanations.of_declined("7") is None
