# SPDX-License-Identifier: Apache-2.0
"""Counts of the calls of drivers."""

from __future__ import annotations

import threading
from typing import NamedTuple


class CallCount(NamedTuple):
    """The calls of one hook of one provider."""

    hook: str
    provider: str
    calls: int
    errors: int
    seconds: float


class CountedCalls:
    """What is counted of them meanwhile. ``lock`` guards all."""

    __slots__ = ("calls", "errors", "last", "lock", "seconds")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.calls = self.errors = 0
        self.seconds = 0.0
        #: Of the call that ended last.
        self.last = 0.0
