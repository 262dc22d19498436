# SPDX-License-Identifier: Apache-2.0
"""Errors that nobody foresaw: logged, undone, or handed to who waits."""

from __future__ import annotations

import logging
import sys
from concurrent.futures import Future
from typing import Any

import pytest

from nodepool.exceptions import ZKConnectionError, ZKException
from nodepool.guard import Guard, OnError, settle

log = logging.getLogger("nodepool.test")


@pytest.mark.parametrize("error", [KeyError("id"), SystemExit(3)])
def test_logged(caplog: pytest.LogCaptureFixture, error: BaseException) -> None:
    """With the place of the caller and the traceback; what follows the context is done."""
    with Guard(log, "Error with %s", "this") as guard:
        raise error
    (record,) = caplog.records
    assert (record.getMessage(), record.levelname, record.filename) == ("Error with this", "ERROR", "test_guard.py")
    assert record.exc_info is not None
    assert record.exc_info[1] is error
    assert isinstance(guard.error, Exception)


def test_exit_becomes_an_exception() -> None:
    with Guard(log, "Error") as guard:
        sys.exit(3)
    assert str(guard.error) == "the driver called sys.exit(3)"


def test_no_error(caplog: pytest.LogCaptureFixture) -> None:
    with Guard(log, "Error") as guard:
        pass
    assert guard.error is None
    assert caplog.records == []


@pytest.mark.parametrize("error", [KeyError("id"), KeyError(), ValueError("50% of it")])
def test_without_traceback(caplog: pytest.LogCaptureFixture, error: Exception) -> None:
    with Guard(log, "Error with %s", "this", level=logging.WARNING, traceback=False):
        raise error
    (record,) = caplog.records
    assert record.getMessage() == f"Error with this: {type(error).__name__}: {error}"
    assert (record.levelname, record.exc_info) == ("WARNING", None)


def test_raised_all_the_same(caplog: pytest.LogCaptureFixture) -> None:
    for error in (ZKConnectionError("away"), KeyboardInterrupt()):
        with pytest.raises(type(error)), Guard(log, "Error", but=ZKConnectionError):
            raise error
    with Guard(log, "Error", but=ZKConnectionError):
        raise ZKException("else")
    assert caplog.messages == ["Error"]


@pytest.mark.parametrize("error", [KeyError("id"), SystemExit(3), KeyboardInterrupt()])
def test_undone(error: BaseException) -> None:
    undone: list[BaseException] = []
    with pytest.raises(type(error)), OnError(undone.append):
        raise error
    assert undone == [error]


def test_nothing_to_undo() -> None:
    undone: list[BaseException] = []
    with OnError(undone.append):
        pass
    assert undone == []


def test_settle() -> None:
    futures: list[Future[Any]] = [Future(), Future()]
    settle(futures, lambda: 7)
    assert [future.result() for future in futures] == [7, 7]


def test_settle_with_an_error() -> None:
    futures: list[Future[Any]] = [Future(), Future()]
    settle(futures, lambda: sys.exit(3))
    assert [type(future.exception()) for future in futures] == [SystemExit, SystemExit]
