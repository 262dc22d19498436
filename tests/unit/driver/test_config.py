# SPDX-License-Identifier: Apache-2.0
"""Bases of drivers' configuration objects, and schema pieces (reference/driver 4 to 6, reference/configuration 5)."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import pytest
import voluptuous as v

from nodepool.driver.config import (
    ConfigPool,
    ConfigValue,
    Connection,
    ImageSettings,
    LabelSettings,
    ProviderConfig,
    connection_schema,
    integer,
    nonempty,
    number,
    port,
)
from nodepool.driver.static.config import StaticNode
from nodepool.model.config_keys import MAX_INT


class Value(ConfigValue):
    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)


class WithOwner(Value):
    ignore_equality: ClassVar[list[str]] = ["owner"]


class WithMore(WithOwner):
    ignore_equality: ClassVar[list[str]] = ["note"]


class Pool(ConfigPool):
    def __init__(self, provider: ProviderConfig | None = None) -> None:
        super().__init__()
        self.provider = provider

    def load(self, pool_config: dict[str, Any]) -> None:
        super().load(pool_config)
        self.labels = {name: LabelSettings(name, self) for name in pool_config.get("labels", [])}


class Section(ProviderConfig):
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
        return v.Schema({**self.getCommonSchemaDict(), "pools": [ConfigPool.getCommonSchemaDict()]})


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
        type("Lazy", (ProviderConfig,), {})({"name": "p"})


@pytest.mark.parametrize(
    ("data", "expected", "static_port"),
    [
        ({}, ("ssh", 22, "auto", None), 22),
        ({"connection-type": "winrm"}, ("winrm", 5986, "auto", None), 22),
        ({"connection-type": "winrm", "connection-port": 1}, ("winrm", 1, "auto", None), 1),
        ({"python-path": "/p", "shell-type": "cmd"}, ("ssh", 22, "/p", "cmd"), 22),
        ({"ssh-port": 23}, ("ssh", 22, "auto", None), 23),
        ({"ssh-port": 23, "connection-port": 24}, ("ssh", 24, "auto", None), 24),
    ],
)
def test_connection(data: dict[str, Any], expected: tuple[object, ...], static_port: int) -> None:
    """reference/configuration 5, 8: static hosts have 22 for winrm too, and ``ssh-port`` as its old name."""
    read = Connection()
    read.read_connection(data)
    assert (read.connection_type, read.connection_port, read.python_path, read.shell_type) == expected
    image = ImageSettings({"name": "i", **data}, username="zuul")
    assert (image.name, image.username, image.connection_type, image.connection_port) == ("i", "zuul", *expected[:2])
    assert ImageSettings({"name": "i", "username": "root"}, username="zuul").username == "root"
    assert StaticNode({"name": "h", "labels": [], **data}).connection_port == static_port


HUGE = pytest.param(integer(), 10**5000, False, id="huge")


@pytest.mark.parametrize(
    ("schema", "value", "valid"),
    [
        *((integer(), value, True) for value in (0, -1, MAX_INT, -MAX_INT)),
        *((integer(), value, False) for value in (True, "1", 1.0, None, 2**63, -(2**63))),
        HUGE,
        *((number(0), value, True) for value in (0, 10, 10.5)),
        *((number(0), value, False) for value in (True, "1", math.inf, -math.inf, math.nan, None, -0.1)),
        (port(), 22, True),
        (nonempty(), "x", True),
        (nonempty(), "", False),
        (connection_schema(), {"connection-type": "x", "connection-port": 65535, "shell-type": None}, True),
        *((connection_schema(), {"connection-port": value}, False) for value in (0, 65536, "22")),
        (connection_schema(), {"ssh-port": 22}, False),
        (
            ProviderConfig.getCommonSchemaDict(),
            {"name": "p", "driver": "x", "max-concurrency": -1, "priority": 1},
            True,
        ),
        *(
            (ProviderConfig.getCommonSchemaDict(), value, False)
            for value in ({}, {"name": ""}, {"name": 1}, {"name": "p", "priority": True}, {"name": "p", "what": 1})
        ),
        (ConfigPool.getCommonSchemaDict(), {"name": "p", "max-servers": -1, "node-attributes": None}, True),
        *(
            (ConfigPool.getCommonSchemaDict(), value, False)
            for value in ({}, {"name": "p", "labels": []}, {"name": "p", "node-attributes": []})
        ),
    ],
)
def test_schema(schema: Any, value: Any, valid: bool) -> None:
    """reference/configuration 2: ``zookeeper-timeout: 10`` is as good as 10.0."""
    if valid:
        assert v.Schema(schema)(value) == value
    else:
        with pytest.raises(v.Invalid):
            v.Schema(schema)(value)
