# SPDX-License-Identifier: Apache-2.0
"""What may stand in a section: schemas of declared keys, dynamic values, and drivers that are not installed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import voluptuous as v

from nodepool.config.objects import Config
from nodepool.driver.framework.key_schema import dynamic_value, section_schema, value_schema
from nodepool.driver.framework.sections import UnavailableProviderConfig
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


@pytest.mark.parametrize(
    ("template", "wanted"),
    [
        *(("{request.id}-{request.tenant_name}", "200-7-t"), ("{request.relative_priority}", "None"), (7, "7")),
        *((template, None) for template in ("{request.nope}", "{other}", "{", "{request.zk}")),
    ],
)
def test_dynamic_value(template: Any, wanted: str | None) -> None:
    """L-15: a bad format skips that value only; nothing but the documented fields can be reached."""
    request: Any = SimpleNamespace(id="200-7", node_types=["small"], requestor="zuul", tenant_name="t", event_id="e")
    assert dynamic_value(template, request) == wanted


def test_driver_that_is_not_installed() -> None:
    """G-4: its section offers nothing; the common keys are checked; equal sections are equal."""
    pool = {"name": "p", "labels": [{"name": "l"}], "size": 3}
    section = {"name": "a", "driver": "x", "cloud": "c", "pools": [pool]}
    provider = UnavailableProviderConfig(section, "why")
    provider.load(Config())
    assert (provider.name, provider.driver.name, provider.reason) == ("a", "x", "why")
    assert (provider.pools, provider.getSupportedLabels("p"), provider.manage_images) == ({}, set(), False)
    schema = provider.getSchema()
    schema(section)
    for wrong in ({"max-concurrency": "x"}, {"pools": [{"max-servers": 1}]}):
        with pytest.raises(v.Invalid):
            schema({**section, **wrong})
    assert UnavailableProviderConfig(section, "why") == UnavailableProviderConfig(dict(section), "why")
    assert UnavailableProviderConfig(section, "why") != UnavailableProviderConfig({**section, "cloud": "d"}, "why")
