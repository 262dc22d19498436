# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import pytest

from nodepool.model.record import InvalidRecord, as_json, plain, read


@dataclass(frozen=True)
class Inner:
    name: str = ""


@dataclass(frozen=True)
class Outer:
    text: str = ""
    count: int = 0
    seconds: float = 0.0
    flag: bool = False
    inner: Inner | None = None
    names: Sequence[str] = ()
    by_name: Mapping[str, Inner] = field(default_factory=dict)


def test_every_type() -> None:
    data = {
        "text": "x",
        "count": 2,
        "seconds": 1,
        "flag": True,
        "inner": {"name": "i"},
        "names": ["a"],
        "by_name": {"k": {"name": "j"}},
        "new": object(),
    }
    assert read(Outer, data) == Outer("x", 2, 1, True, Inner("i"), ("a",), {"k": Inner("j")})
    assert read(Outer, {"inner": None}) == Outer()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "a list, not an object"),
        ({"text": 1}, "text is a int"),
        ({"count": True}, "count is a bool"),
        ({"seconds": float("nan")}, "seconds is a float"),
        ({"inner": "x"}, "a str, not an object"),
        ({"names": "abc"}, "names is a str"),
        ({"by_name": [1]}, "by_name is a list"),
        ({"flag": None}, "flag is a NoneType"),
    ],
)
def test_another_type_is_refused(data: Any, message: str) -> None:
    with pytest.raises(InvalidRecord, match=message):
        read(Outer, data)


def test_as_an_object_of_json() -> None:
    """As `dataclasses.asdict` has it, with lists for tuples."""
    record = Outer("x", 2, 1, True, Inner("i"), ("a",), {"k": Inner("j")})
    made = plain(record)
    assert made == {**asdict(record), "names": ["a"]}
    assert read(Outer, made) == record
    assert (plain([1, None, "x"]), plain((Inner("i"), 1.5))) == ([1, None, "x"], [{"name": "i"}, 1.5])


def test_as_text() -> None:
    """What orjson refuses the standard library writes; what neither writes is an error."""
    assert as_json(Inner("ü")) == '{"name":"ü"}'.encode()
    assert as_json(Inner("\udc80")) == b'{"name":"\\udc80"}'
    with pytest.raises(ValueError, match="not JSON compliant"):
        as_json(["\udc80", float("inf")])
    with pytest.raises((ValueError, TypeError)):
        as_json(object())
