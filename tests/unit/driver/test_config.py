# SPDX-License-Identifier: Apache-2.0
"""Bases of drivers' configuration objects, and schema pieces (reference/driver 4 to 6, reference/configuration 5)."""

from __future__ import annotations

import math
import subprocess
import sys
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


class OneArgument(ProviderConfig):
    """The constructor of a driver like static."""

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


class TwoArguments(OneArgument):
    """The constructor of most drivers."""

    def __init__(self, driver: object, provider: dict[str, Any]) -> None:
        self.driver_object = driver
        super().__init__(provider)


class TestConfigValue:
    def test_compares_attributes(self) -> None:
        """reference/driver 6: all attributes count, also those that only one of the two has."""
        assert Value(a=1, b=[2]) == Value(a=1, b=[2])
        assert Value(a=1) != Value(a=2)
        assert Value(a=1) != Value(a=1, b=None)
        assert Value(a=1, b=None) != Value(a=1)

    def test_ignores(self) -> None:
        """reference/driver 6: attributes in ``ignore_equality`` do not count, also those that a base class names."""
        assert WithOwner(a=1, owner=1) == WithOwner(a=1, owner=2)
        assert WithOwner(a=1) == WithOwner(a=1, owner=2)
        assert WithOwner(a=1) != WithOwner(a=2)
        assert WithMore(a=1, owner=1, note=1) == WithMore(a=1, owner=2, note=2)

    def test_class_counts(self) -> None:
        """Objects of different classes are never equal."""
        assert Value(a=1) != WithOwner(a=1)
        assert Value() != {}

    def test_hash(self) -> None:
        """Drivers written for 11.0.0 use them as keys: equal ones are one key, also when they have changed."""
        one, other = Value(a=1), Value(a=1)
        known = {one: 1}
        vars(one)["a"] = vars(other)["a"] = 2
        assert known[other] == 1


class TestProviderConfig:
    def test_defaults(self) -> None:
        """reference/driver 4: driver openstack, no limit of launches, no priority."""
        config = OneArgument({"name": "p"})
        assert (config.name, config.driver.name, config.max_concurrency, config.priority) == (
            "p",
            "openstack",
            -1,
            None,
        )
        assert config.provider == {"name": "p"}

    def test_given(self) -> None:
        section = {"name": "p", "driver": "static", "max-concurrency": 0, "priority": 7}
        config = OneArgument(section)
        assert (config.driver.name, config.max_concurrency, config.priority) == ("static", 0, 7)

    @pytest.mark.parametrize("make", [OneArgument, lambda section: TwoArguments(None, section)])
    def test_two_loads_are_equal(self, make: Any) -> None:
        """G-4: a reload of an unchanged section finds it equal, although pools and labels point back."""
        section = {"name": "p", "pools": [{"name": "main", "labels": ["a", "b"]}]}
        first, second, other = make(section), make(dict(section)), make({**section, "pools": [{"name": "main"}]})
        for config in (first, second, other):
            config.load(None)
        assert first == second
        assert first != other

    def test_missing_members(self) -> None:
        """A subclass that lacks something is refused with everything that it lacks."""

        class Lazy(ProviderConfig):
            pass

        with pytest.raises(TypeError) as caught:
            Lazy({"name": "p"})  # type: ignore[abstract]
        for name in ("pools", "manage_images", "load", "getSchema"):
            assert name in str(caught.value)

    def test_common_schema(self) -> None:
        schema = v.Schema(OneArgument.getCommonSchemaDict())
        schema({"name": "p", "driver": "x", "max-concurrency": -1, "priority": 1})
        for bad in ({}, {"name": ""}, {"name": 1}, {"name": "p", "priority": True}, {"name": "p", "what": 1}):
            with pytest.raises(v.Invalid):
                schema(bad)


class TestConfigPool:
    def test_defaults(self) -> None:
        """reference/driver 5."""
        pool = Pool()
        pool.load({"name": "main"})
        assert (pool.name, pool.max_servers, pool.node_attributes, pool.priority) == ("main", math.inf, None, None)
        assert (pool.ignore_provider_quota, pool.azs, pool.labels) == (False, None, {})

    def test_given(self) -> None:
        pool = Pool()
        pool.load({"name": "main", "max-servers": 0, "node-attributes": {"a": 1}, "priority": 5})
        assert (pool.max_servers, pool.node_attributes, pool.priority) == (0, {"a": 1}, 5)

    def test_priority_of_the_provider(self) -> None:
        """reference/configuration 5: a pool without priority has its provider's."""
        provider = OneArgument({"name": "p", "priority": 3, "pools": [{"name": "a"}, {"name": "b", "priority": 4}]})
        provider.load(None)
        assert [pool.priority for pool in provider.pools.values()] == [3, 4]

    def test_common_schema(self) -> None:
        schema = v.Schema(ConfigPool.getCommonSchemaDict())
        schema({"name": "p", "max-servers": -1, "node-attributes": None, "priority": 1})
        for bad in ({}, {"name": "p", "labels": []}, {"name": "p", "node-attributes": []}):
            with pytest.raises(v.Invalid):
                schema(bad)


class TestConnection:
    @pytest.mark.parametrize(
        ("data", "expected"),
        [
            ({}, ("ssh", 22, "auto", None)),
            ({"connection-type": "winrm"}, ("winrm", 5986, "auto", None)),
            ({"connection-type": "winrm", "connection-port": 1}, ("winrm", 1, "auto", None)),
            ({"python-path": "/p", "shell-type": "cmd"}, ("ssh", 22, "/p", "cmd")),
        ],
    )
    def test_defaults(self, data: dict[str, Any], expected: tuple[object, ...]) -> None:
        """reference/configuration 5, connection defaults."""
        read = Connection()
        read.read_connection(data)
        assert (read.connection_type, read.connection_port, read.python_path, read.shell_type) == expected

    @pytest.mark.parametrize(
        ("data", "expected"),
        [
            ({}, 22),
            ({"connection-type": "winrm"}, 22),
            ({"ssh-port": 23}, 23),
            ({"ssh-port": 23, "connection-port": 24}, 24),
        ],
    )
    def test_static_port(self, data: dict[str, Any], expected: int) -> None:
        """reference/configuration 8: 22 for winrm too; ``ssh-port`` is the old name."""
        assert StaticNode({"name": "h", "labels": [], **data}).connection_port == expected

    def test_schema(self) -> None:
        schema = v.Schema(connection_schema())
        schema({"connection-type": "anything", "connection-port": 65535, "python-path": "p", "shell-type": None})
        for bad in ({"connection-port": 0}, {"connection-port": 65536}, {"connection-port": "22"}, {"ssh-port": 22}):
            with pytest.raises(v.Invalid):
                schema(bad)

    def test_image(self) -> None:
        """reference/driver 6: attributes of an image object."""
        image = ImageSettings({"name": "i", "connection-type": "winrm"}, username="zuul")
        assert (image.name, image.username, image.connection_type, image.connection_port) == (
            "i",
            "zuul",
            "winrm",
            5986,
        )
        assert ImageSettings({"name": "i", "username": "root"}, username="zuul").username == "root"


class TestNumbers:
    @pytest.mark.parametrize("value", [True, "1", 1.0, None, 2**63, -(2**63), pytest.param(10**5000, id="huge")])
    def test_no_integer(self, value: object) -> None:
        with pytest.raises(v.Invalid):
            v.Schema(integer())(value)

    @pytest.mark.parametrize("value", [0, -1, MAX_INT, -MAX_INT])
    def test_integer(self, value: int) -> None:
        assert v.Schema(integer())(value) == value

    @pytest.mark.parametrize(
        "value", [True, "1", math.inf, -math.inf, math.nan, None, pytest.param(10**5000, id="huge"), -0.1]
    )
    def test_no_number(self, value: object) -> None:
        with pytest.raises(v.Invalid):
            v.Schema(number(0))(value)

    @pytest.mark.parametrize("value", [0, 10, 10.5])
    def test_number(self, value: float) -> None:
        """reference/configuration 2: ``zookeeper-timeout: 10`` is as good as 10.0."""
        assert v.Schema(number(0))(value) == value

    def test_port_and_text(self) -> None:
        assert v.Schema(port())(22) == 22
        assert v.Schema(nonempty())("x") == "x"
        with pytest.raises(v.Invalid):
            v.Schema(nonempty())("")


def test_import_is_light() -> None:
    """Commands that only list do not load the schema library."""
    code = "import sys, nodepool.driver.config; sys.exit('voluptuous' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
