# SPDX-License-Identifier: Apache-2.0
"""`nodepool.driver.utils.RateLimitInstance` of 11.0.0."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType

from nodepool.driver.framework.rate import RateLimiter


class RateLimitInstance(AbstractContextManager[None]):
    """One call under a limit: what ``limiter(log_method, text)`` gives."""

    def __init__(self, limiter: RateLimiter, logger: Callable[..., None], msg: str) -> None:
        self._turn = limiter(logger, msg)

    def __enter__(self) -> None:
        self._turn.__enter__()

    def __exit__(
        self, etype: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._turn.__exit__(etype, value, tb)
