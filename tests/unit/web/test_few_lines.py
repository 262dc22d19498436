# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from nodepool.web.logins import FewLines
from tests.support.manual_clock import ManualClock


def test_few_lines() -> None:
    """WP-66: who sends what is refused cannot fill the log."""
    clock = ManualClock()
    lines = FewLines(2, 60.0, clock)
    assert [lines.one_more() for _ in range(4)] == [True, True, False, False]
    clock.pass_seconds(59.0)
    assert not lines.one_more()
    clock.pass_seconds(1.0)
    assert [lines.one_more() for _ in range(3)] == [True, True, False]
