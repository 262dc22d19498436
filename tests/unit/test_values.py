# SPDX-License-Identifier: Apache-2.0
"""JSON that is fast is that of the standard library, to the type; guards against errors; times."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nodepool.clock import next_tick
from nodepool.driver.framework.http.plain_http import HttpAnswer
from nodepool.exceptions import ZKConnectionError, ZKException
from nodepool.fast_json import dumps, loads, loads_any
from nodepool.guard import Guard, OnError, settle
from tests.support.odd_json import records, values

GOOD = {"id": "1", "ram": 2.5, "cores": 10**17, "names": ["grüße ✓", None, True]}


@settings(deadline=None, max_examples=100)
@example(b'{"a": 1, "b": 2, "a": 3}')
@example(b"[18446744073709551615, 18446744073709551616, -9223372036854775809]")
@example(b"[0.1234567890123456789012345, 2.2250738585072011e-308, 123456789012345678901e5]")
@given(values.map(str.encode) | records(GOOD) | st.floats().map(lambda number: repr(number).encode()))
def test_json_as_the_standard_library(text: bytes) -> None:
    """Or it is refused. The order of keys, -0.0 and whole floats too."""
    is_the_same(text)


def is_the_same(text: bytes) -> None:
    try:
        found = loads(text)
    except ValueError:
        return
    assert repr(found) == repr(json.loads(text))


@pytest.mark.parametrize(
    "text",
    [
        *(b"NaN", b"Infinity", b"1e400", b'"\\ud800"', b"1" * 19, b"-" + b"9" * 4000, b"[" + b"1" * 19 + b"]", b""),
        *(b'{"a":-' + b"9" * 20 + b"}", b"[" * 2000 + b"]" * 2000, b"{", '{"a": "ü"}'.encode("latin-1")),
        *('{"a": 1}'.encode("utf-16"), '{"a": 1}'.encode("utf-8-sig")),
    ],
)
def test_refused(text: bytes) -> None:
    with pytest.raises(ValueError):
        loads(text)


@pytest.mark.parametrize(
    "text", ['{"name": "ci-1764394800123456789"}', '{"limit": 9223372036854775807}', '{"a": Infinity}', '"\\ud800"']
)
def test_answers_of_clouds(text: str) -> None:
    """What is read only slowly is read: a name of another server, or a limit."""
    with pytest.raises(ValueError):
        loads(text.encode())
    for found in (loads_any(text.encode()), HttpAnswer(200, {}, text.encode()).json()):
        assert found == json.loads(text)


@dataclass(frozen=True)
class Record:
    name: str
    parts: Sequence[str] = ()


def test_written_json() -> None:
    value = {"b": Record("ü", ("x",)), "a": [1.5, None, True, float("nan")]}
    assert dumps(value).decode() == '{"a":[1.5,null,true,null],"b":{"name":"ü","parts":["x"]}}'
    for bad in (object(), "\udc80", {"a": {1}}):
        with pytest.raises(ValueError):
            dumps(bad)


log = logging.getLogger("nodepool.test")


@pytest.mark.parametrize("error", [KeyError("id"), SystemExit(3)])
def test_guard(caplog: pytest.LogCaptureFixture, error: BaseException) -> None:
    """An error that was not foreseen is logged, with the place of the caller; what follows the context is done."""
    with Guard(log, "Error with %s", "this") as guard:
        raise error
    (record,) = caplog.records
    assert (record.getMessage(), record.levelname, record.filename) == ("Error with this", "ERROR", "test_values.py")
    assert record.exc_info is not None
    assert record.exc_info[1] is error
    assert isinstance(guard.error, Exception)
    assert isinstance(error, KeyError) or str(guard.error) == "the driver called sys.exit(3)"


@pytest.mark.parametrize("error", [KeyError("id"), KeyError(), ValueError("50% of it")])
def test_guard_without_traceback(caplog: pytest.LogCaptureFixture, error: Exception) -> None:
    with Guard(log, "Error with %s", "this", level=logging.WARNING, traceback=False):
        raise error
    (record,) = caplog.records
    assert record.getMessage() == f"Error with this: {type(error).__name__}: {error}"
    assert (record.levelname, record.exc_info) == ("WARNING", None)


def test_guard_raises_what_it_shall(caplog: pytest.LogCaptureFixture) -> None:
    for error in (ZKConnectionError("away"), KeyboardInterrupt()):
        with pytest.raises(type(error)), Guard(log, "Error", but=ZKConnectionError):
            raise error
    with Guard(log, "Error", but=ZKConnectionError) as guard:
        pass
    assert (guard.error, caplog.messages) == (None, [])
    with Guard(log, "Error", but=ZKConnectionError):
        raise ZKException("else")
    assert caplog.messages == ["Error"]


@pytest.mark.parametrize("error", [KeyError("id"), SystemExit(3), KeyboardInterrupt(), None])
def test_undone(error: BaseException | None) -> None:
    undone: list[BaseException] = []
    if error is None:
        with OnError(undone.append):
            pass
    else:
        with pytest.raises(type(error)), OnError(undone.append):
            raise error
    assert undone == ([] if error is None else [error])


def test_settle() -> None:
    futures: list[Future[Any]] = [Future(), Future()]
    settle(futures, lambda: 7)
    assert [future.result() for future in futures] == [7, 7]
    futures = [Future(), Future()]
    settle(futures, lambda: sys.exit(3))
    assert [type(future.exception()) for future in futures] == [SystemExit, SystemExit]


@pytest.mark.parametrize(
    ("now", "period", "expected"),
    [(100.0, 1.0, 101.0), (100.1, 1.0, 101.0), (100.99, 1.0, 101.0), (100.1, 0.25, 100.25), (0.0, 2.0, 2.0)],
)
def test_next_tick(now: float, period: float, expected: float) -> None:
    """Later than now, and the same for all who ask in a period."""
    assert next_tick(now, period) == expected
