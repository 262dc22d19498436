# SPDX-License-Identifier: Apache-2.0
"""Three rules for errors that no one foresaw: they end in the log, they undo what was begun, or they go to who waits.

All three take a ``sys.exit()`` of a driver, or of a library of its, for an error like others. What wants to end the
process otherwise (KeyboardInterrupt) passes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Final, TypeVar

T = TypeVar("T")

#: What drivers and their libraries raise.
ERRORS: Final = (Exception, SystemExit)


def as_exception(error: BaseException) -> Exception:
    """An error as one that ends no process, in whichever thread it is raised."""
    if isinstance(error, Exception):
        return error
    exits = isinstance(error, SystemExit)
    told = RuntimeError(f"the driver called sys.exit({error})" if exits else f"{type(error).__name__}: {error}")
    told.__cause__ = error
    return told


class Guard:
    """A context: an error inside goes to the log and ends there; the code behind the context goes on.

    For one item of many, whose error is to affect no other, for listeners, and for passes of threads. Where it is used
    very often, one is kept and used again, by any threads; then ``error`` says nothing.

    :param log: gets the error.
    :param text: of the line, with ``args``.
    :param but: errors that are raised all the same.
    :param level: of the line.
    :param traceback: False = the error stands behind the text, in the same line.
    """

    __slots__ = ("_args", "_but", "_level", "_log", "_text", "_traceback", "error")

    def __init__(
        self,
        log: logging.Logger | logging.LoggerAdapter[Any],
        text: str,
        *args: object,
        but: type[Exception] | tuple[type[Exception], ...] = (),
        level: int = logging.ERROR,
        traceback: bool = True,
    ) -> None:
        self._log = log
        self._text = text
        self._args = args
        self._but = but
        self._level = level
        self._traceback = traceback
        #: What was raised, and logged; None = nothing.
        self.error: Exception | None = None

    def __enter__(self) -> Guard:
        return self

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None) -> bool:
        if error is None or not isinstance(error, ERRORS) or isinstance(error, self._but):
            return False
        self.error = as_exception(error)
        if self._traceback:
            self._log.log(self._level, self._text, *self._args, exc_info=error, stacklevel=2)
        else:
            told = f"{type(error).__name__}: {error}"
            self._log.log(self._level, f"{self._text}: %s", *self._args, told, stacklevel=2)
        return True


class OnError:
    """A context: whatever is raised inside, something is done before it goes on to the caller.

    :param undo: gets the error. KeyboardInterrupt and the like, too.
    """

    __slots__ = ("_undo",)

    def __init__(self, undo: Callable[[BaseException], object]) -> None:
        self._undo = undo

    def __enter__(self) -> None:
        return

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None) -> None:
        if error is not None:
            self._undo(error)


def settle(futures: Iterable[Future[T]], call: Callable[[], T]) -> None:
    """Call a function, and give its result, or what it raises, to all who wait for it. Raises nothing.

    As in other executors: also what wants to end the process goes to who waits.
    """
    try:
        result = call()
    except BaseException as error:  # noqa: BLE001 - it is raised by `Future.result`
        for future in futures:
            future.set_exception(error)
    else:
        for future in futures:
            future.set_result(result)
