# SPDX-License-Identifier: Apache-2.0
"""An executor without threads."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any


class ManualExecutor(Executor):
    """Runs what was submitted when told to; at once if ``eager``."""

    def __init__(self, eager: bool = True) -> None:
        self.eager = eager
        self.waiting: list[tuple[Future[Any], Callable[[], Any]]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.waiting.append((future, lambda: fn(*args, **kwargs)))
        if self.eager:
            self.run()
        return future

    def run(self) -> None:
        waiting, self.waiting = self.waiting, []
        for future, call in waiting:
            try:
                future.set_result(call())
            except (Exception, SystemExit) as error:
                future.set_exception(error)
