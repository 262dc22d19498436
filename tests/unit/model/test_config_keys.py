# SPDX-License-Identifier: Apache-2.0
"""Declarations of configuration keys: attribute, default and equality come from them."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import pytest

from nodepool.model.config_keys import (
    ANY_MAPPING,
    FLAG,
    PORT,
    REQUIRED,
    TEXT,
    TEXTS,
    WHOLE,
    ConfigValue,
    From,
    Number,
    Sections,
    key,
    keys_of,
    section_class,
    with_default,
)


class Item(ConfigValue):
    name: str = key(TEXT, REQUIRED, "Name.")
    zones: list[str] | None = key(TEXTS, From("owner"), "Zones.")

    def __init__(self, owner: Any = None) -> None:
        self.owner = owner


class Base(ConfigValue):
    name: str = key(TEXT, REQUIRED, "Name.")
    max_servers: float = key(WHOLE, math.inf, "Limit.")
    wait: float = key(Number(0), 1.0, "Wait.")
    cleared: Any = key(TEXT, "x", "Later not a key.")


class Section(Base):
    without_keys: ClassVar[tuple[str, ...]] = ("max-servers",)
    keys_also_of: ClassVar[tuple[type, ...]] = (Item,)

    wait: float = with_default(Base.wait, 2.0)
    cleared = "fixed"
    meta: dict[str, Any] = key(ANY_MAPPING.or_null(), {}, "Mapping.")
    listen: int = key(PORT, 80, "Port.", name="web.port")
    tags: set[str] = key(TEXTS, set(), "Tags.", convert=set)
    old: None = key(FLAG, None, "Without effect.", read=False)
    items: Any = key(Sections(Item), None, "Items.")


def read(**data: Any) -> Section:
    section = Section()
    section.read_keys({name.replace("_", "-"): value for name, value in data.items()})
    return section


def test_defaults() -> None:
    """What is not given has its default, before and after it was read; mutable ones are not shared."""
    section = read(name="s")
    assert (section.name, section.wait, section.meta, section.listen, section.tags) == ("s", 2.0, {}, 80, set())
    section.meta["a"] = 1
    assert (read(name="s").meta, Section().meta, Section().wait, Base().wait) == ({}, {}, 2.0, 1.0)


def test_given() -> None:
    section = read(name="s", wait=3, meta={"k": 1}, web={"port": 8080}, tags=["a", "b"], unknown=1)
    assert (section.wait, section.meta, section.listen, section.tags) == (3.0, {"k": 1}, 8080, {"a", "b"})
    assert isinstance(section.wait, float)


@pytest.mark.parametrize("nothing", [None, ""])
def test_nothing_is_not_given(nothing: Any) -> None:
    section = read(name="s", wait=nothing, meta=nothing, web={"port": nothing})
    assert (section.wait, section.meta, section.listen) == (2.0, {}, 80)


def test_only_attributes_of_keys_that_are_read() -> None:
    """Not: without effect, sections, keys of others, keys of a base that the section does not have or use."""
    section = read(name="s", old=True, items=[{"name": "i"}], max_servers=3, cleared="y", zones=["z"])
    assert set(vars(section)) == {"name", "wait", "meta", "listen", "tags"}
    assert section.cleared == "fixed"


def test_some_keys_first() -> None:
    """A base class may read its own."""
    section = Section()
    section.read_keys({"name": "s", "wait": 5, "meta": {"a": 1}}, Item)
    assert vars(section) == {"name": "s", "zones": None}


def test_from_another_object() -> None:
    outer, inner = Item(), Item()
    outer.read_keys({"name": "o", "zones": ["a"]})
    inner.owner = outer
    inner.read_keys({"name": "i"})
    assert (inner.zones, outer.zones) == (["a"], ["a"])
    inner.read_keys({"name": "i", "zones": ["b"]})
    assert inner.zones == ["b"]


def test_names() -> None:
    """Those of base classes first, then of other sections that stand here too."""
    expected = ["name", "wait", "cleared", "meta", "web.port", "tags", "old", "items", "zones"]
    assert [item.name for item in keys_of(Section)] == expected
    assert [item.name for item in keys_of(Base)] == ["name", "max-servers", "wait", "cleared"]


def test_equality() -> None:
    """G-4: what a key sets counts, what is read by nobody does not."""
    assert read(name="s", old=True) == read(name="s")
    assert read(name="s", wait=2) == read(name="s")
    assert read(name="s", web={"port": 1}) != read(name="s")


def test_class_of_a_list() -> None:
    assert section_class(Section, "items") is Item
    with pytest.raises(TypeError, match="tags of Section is no list of sections"):
        section_class(Section, "tags")
