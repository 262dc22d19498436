# SPDX-License-Identifier: Apache-2.0
"""Bases of drivers' configuration objects, and schema pieces (reference/driver 4 to 6, reference/configuration 5)."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import pytest
import voluptuous as v

from nodepool.driver import config


class Value(config.ConfigValue):
    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)


class WithOwner(Value):
    ignore_equality: ClassVar[list[str]] = ["owner"]


class WithMore(WithOwner):
    ignore_equality: ClassVar[list[str]] = ["note"]


class Pool(config.ConfigPool):
    def __init__(self, provider: config.ProviderConfig | None = None) -> None:
        super().__init__()
        self.provider = provider

    def load(self, pool_config: dict[str, Any]) -> None:
        super().load(pool_config)
        self.labels = {name: config.LabelSettings(name, self) for name in pool_config.get("labels", [])}


class Section(config.ProviderConfig):
    def __init__(self, provider: dict[str, Any]) -> None:
        super().__init__(provider)
        self._pools: dict[str, Pool] = {}

    @property
    def pools(self) -> dict[str, Any]:
        return self._pools

    @property
    def manage_images(self) -> bool:
        return False

    def load(self, newconfig: Any) -> None:
        for section in self.provider.get("pools", []):
            pool = Pool(self)
            pool.load(section)
            self._pools[pool.name] = pool

    def getSchema(self) -> Any:
        return v.Schema({**self.getCommonSchemaDict(), "pools": [config.ConfigPool.getCommonSchemaDict()]})


def section(**keys: Any) -> Section:
    made = Section({"name": "p", **{name.replace("_", "-"): value for name, value in keys.items()}})
    made.load(None)
    return made


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        (Value(a=1, b=[2]), Value(a=1, b=[2]), True),
        (Value(a=1), Value(a=2), False),
        (Value(a=1), Value(a=1, b=None), False),
        (WithOwner(a=1, owner=1), WithOwner(a=1, owner=2), True),
        (WithOwner(a=1), WithOwner(a=1, owner=2), True),
        (WithOwner(a=1), WithOwner(a=2), False),
        (WithMore(a=1, owner=1, note=1), WithMore(a=1, owner=2, note=2), True),
        (Value(a=1), WithOwner(a=1), False),
        (Value(), {}, False),
        (section(pools=[{"name": "a", "labels": ["x"]}]), section(pools=[{"name": "a", "labels": ["x"]}]), True),
        (section(pools=[{"name": "a", "labels": ["x"]}]), section(pools=[{"name": "a"}]), False),
    ],
)
def test_equality(one: Any, other: Any, equal: bool) -> None:
    """reference/driver 6, G-4: all attributes count, but those in ``ignore_equality`` of a class and its bases.

    Also where pools and labels point back.
    """
    assert (one == other, other == one) == (equal, equal)


def test_settings() -> None:
    """reference/driver 4, 5: defaults; a pool without a priority has its provider's."""
    for found, expected in (
        (section(), ("openstack", -1, None)),
        (section(driver="static", max_concurrency=0, priority=7), ("static", 0, 7)),
    ):
        assert (found.driver.name, found.max_concurrency, found.priority) == expected
    given = {"name": "b", "max-servers": 0, "node-attributes": {"a": 1}, "priority": 4}
    a, b = section(priority=3, pools=[{"name": "a", "labels": ["x"]}, given]).pools.values()
    assert (a.name, a.max_servers, a.node_attributes, a.priority) == ("a", math.inf, None, 3)
    assert (a.ignore_provider_quota, a.azs, b.labels) == (False, None, {})
    assert (b.max_servers, b.node_attributes, b.priority) == (0, {"a": 1}, 4)
    pools = section(pools=[{"name": "a", "labels": ["x"]}, {"name": "b", "labels": ["y"]}])
    assert (pools.getSupportedLabels("b"), pools.getSupportedLabels()) == ({"y"}, {"x", "y"})
    with pytest.raises(TypeError, match=r"getSchema.*load.*manage_images.*pools"):
        type("Lazy", (config.ProviderConfig,), {})({"name": "p"})
