# SPDX-License-Identifier: Apache-2.0
"""What is read fast is what the standard library reads, to the type; all else is refused."""

from __future__ import annotations

import dataclasses
import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from requests.structures import CaseInsensitiveDict

from nodepool import fast_json
from nodepool.driver.framework.http.connections import QuickAnswer
from nodepool.driver.framework.http.plain_http import HttpAnswer
from tests.support.odd_json import TRAPS, records, values

GOOD = {"id": "1", "ram": 2.5, "cores": 10**17, "names": ["grüße ✓", None, True]}


@settings(deadline=None, max_examples=100)
@example(b'{"a": 1, "b": 2, "a": 3}')
@example(b"[18446744073709551615, 18446744073709551616, -9223372036854775809]")
@example(b"[0.1234567890123456789012345, 2.2250738585072011e-308, 123456789012345678901e5]")
@given(values.map(str.encode) | records(GOOD) | st.floats().map(lambda number: repr(number).encode()))
def test_as_the_standard_library(text: bytes) -> None:
    try:
        found = fast_json.loads(text)
    except ValueError:
        return
    # The order of keys, -0.0 and whole floats too.
    assert repr(found) == repr(json.loads(text))


@pytest.mark.parametrize(
    "text", [json.dumps(GOOD), '{"flavor": {"id": "' + "123456789-" * 50 + '", "hostId": "' + "1234567890" * 5 + '"}}']
)
def test_usual_texts(text: str) -> None:
    assert fast_json.loads(text.encode()) == json.loads(text)


@pytest.mark.parametrize(
    "text",
    [
        b"NaN",
        b"Infinity",
        b"1e400",
        b'"\\ud800"',
        b"1" * 19,
        b"-" + b"9" * 4000,
        b"[" + b"1" * 19 + b"]",
        b'{"a":-' + b"9" * 20 + b"}",
        b"[" * 2000 + b"]" * 2000,
        b"",
        b"{",
    ],
    ids=lambda text: text[:20].decode(),
)
def test_refused(text: bytes) -> None:
    with pytest.raises(ValueError):
        fast_json.loads(text)


@pytest.mark.parametrize(
    "text", ['{"name": "ci-1764394800123456789"}', '{"limit": 9223372036854775807}', '{"a": Infinity}', '"\\ud800"']
)
def test_answers_of_clouds(text: str) -> None:
    """What is read only slowly is read: a name of somebody else's server, or a limit."""
    with pytest.raises(ValueError):
        fast_json.loads(text.encode())
    quick = QuickAnswer(200, CaseInsensitiveDict(), text.encode(), keep=True)
    for found in (fast_json.loads_any(text.encode()), quick.json(), HttpAnswer(200, {}, text.encode()).json()):
        assert found == json.loads(text)


def test_texts_of_other_encodings() -> None:
    for text in ('{"a": "ü"}'.encode("latin-1"), '{"a": 1}'.encode("utf-16"), '{"a": 1}'.encode("utf-8-sig")):
        with pytest.raises(ValueError):
            fast_json.loads(text)


def test_all_traps_are_tried() -> None:
    """One by one, because the search may miss some."""
    for trap in TRAPS:
        test_as_the_standard_library.hypothesis.inner_test(trap.encode())  # type: ignore[attr-defined]


@dataclasses.dataclass(frozen=True)
class Record:
    """One that is written."""

    name: str
    parts: tuple[int, ...] = ()


def test_written() -> None:
    value = {"b": Record("ü", (1, 2)), "a": [1.5, None, True, float("nan")]}
    assert fast_json.dumps(value) == '{"a":[1.5,null,true,null],"b":{"name":"ü","parts":[1,2]}}'.encode()


@pytest.mark.parametrize("value", [object(), "\udc80", {"a": {1}}])
def test_what_is_not_written(value: object) -> None:
    with pytest.raises(ValueError):
        fast_json.dumps(value)
