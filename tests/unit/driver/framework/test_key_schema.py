# SPDX-License-Identifier: Apache-2.0
"""Schemas of declared keys."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
import voluptuous as v

from nodepool.driver.framework.key_schema import section_schema, value_schema
from nodepool.model import config_keys as keys
from nodepool.model.config_keys import REQUIRED, ConfigValue, key


def no_twins(section: dict[str, Any]) -> dict[str, Any]:
    if section["name"] == section.get("other"):
        raise v.Invalid("twins")
    return section


class Inner(ConfigValue):
    name: str = key(keys.FILLED_TEXT, REQUIRED, "Name.")


class Section(ConfigValue):
    checks: ClassVar[tuple[Any, ...]] = (no_twins,)

    name: str = key(keys.FILLED_TEXT, REQUIRED, "Name.")
    other: str = key(keys.TEXT, "", "Other.")
    cert: str = key(keys.TEXT, REQUIRED, "File.", name="tls.cert")
    ca: str = key(keys.TEXT, "", "File.", name="tls.ca")
    inner: Any = key(keys.Sections(Inner), None, "Sections.")


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (keys.TEXT, ["", "a"], [None, 1]),
        (keys.TEXT.or_null(), ["a", None], [1]),
        (keys.FILLED_TEXT, ["a"], [""]),
        (keys.Text(choices=("a", "b")), ["a", "b"], ["c", None]),
        (keys.WHOLE, [0, -1, keys.MAX_INT], [1.0, True, "1", keys.MAX_INT + 1]),
        (keys.PORT, [1, 65535], [0, 65536]),
        (keys.Number(0), [0, 0.5, 3], [-1, True, "1", float("inf")]),
        (keys.Number(0, more=True), [0.5], [0]),
        (keys.FLAG, [True, False], [0, "true"]),
        (keys.ANY_MAPPING, [{}, {1: 2}], [[], None]),
        (keys.MappingOf(keys.WHOLE), [{"a": 1}], [{"a": "b"}, {1: 1}]),
        (keys.TEXTS, [[], ["a"]], ["a", [1], None]),
        (keys.OneOf((keys.TEXT, keys.TEXTS)), ["a", ["a"]], [1, [1]]),
        (keys.Sections(Inner), [[], [{"name": "a"}]], [[{}], [{"name": ""}], {}]),
    ],
)
def test_values(kind: keys.ValueType, good: list[Any], bad: list[Any]) -> None:
    schema = v.Schema(value_schema(kind))
    for value in good:
        assert schema(value) == value
    for value in bad:
        with pytest.raises(v.Invalid):
            schema(value)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, None),
        ({"inner": [{"name": "i"}], "other": "y", "tls": {"cert": "c", "ca": "a"}}, None),
        ({"name": ""}, "length of value must be at least 1"),
        ({"tls": {"ca": "a"}}, "required key not provided @ data\\['tls'\\]\\['cert'\\]"),
        ({"tls": {"cert": "c", "key": "k"}}, "extra keys not allowed"),
        ({"inner": [{"nam": "i"}]}, "inner"),
        ({"other": "x"}, "twins"),
    ],
)
def test_sections(change: dict[str, Any], expected: str | None) -> None:
    """Keys with a dot stand in a mapping; ``checks`` see a section whose keys are right."""
    section = {"name": "x", "tls": {"cert": "c"}, **change}
    schema = v.Schema(section_schema(Section))
    if expected is None:
        assert schema(section) == section
        return
    with pytest.raises(v.Invalid, match=expected):
        schema(section)


def test_unknown_kind() -> None:
    with pytest.raises(TypeError, match="no schema for"):
        value_schema(keys.ValueType())
