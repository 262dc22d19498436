# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest

from nodepool.compat.modules import RateLimitInstance
from nodepool.driver.framework.rate import RateLimiter


def test_waits_and_logs() -> None:
    slept: list[float] = []
    lines: list[tuple[Any, ...]] = []
    limiter = RateLimiter("cloud", 2, clock=lambda: 5.0, sleep=slept.append)
    for _ in range(2):
        with RateLimitInstance(limiter, lambda *args: lines.append(args), "Listed"):
            pass
    assert slept == [0.5]
    assert [line[2] for line in lines] == ["Listed", "Listed"]


def test_error_goes_on() -> None:
    limiter = RateLimiter("cloud", 0)
    with pytest.raises(KeyError), RateLimitInstance(limiter, lambda *_: None, "Listed"):
        raise KeyError
