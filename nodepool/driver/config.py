# SPDX-License-Identifier: Apache-2.0
"""Bases of a driver's configuration objects (driver-api.md 4 to 6; config.md 5)."""

from __future__ import annotations

import abc
import math
from typing import TYPE_CHECKING, Any, ClassVar

import voluptuous as v

if TYPE_CHECKING:
    from nodepool.config.objects import Config

DEFAULT_DRIVER = "openstack"
#: ``connection-port`` when none is given, by ``connection-type``.
DEFAULT_PORT = 22
WINRM_PORT = 5986


class ConfigValue:
    """Compares by attributes: a reload changes only what is not equal any more.

    Class attribute ``ignore_equality`` names attributes that are left out (back references).
    """

    ignore_equality: ClassVar[list[str]] = []

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if type(self) is not type(other):
            return False
        mine, theirs = vars(self), vars(other)
        names = (mine.keys() | theirs.keys()) - set(self.ignore_equality)
        missing = object()
        return all(mine.get(name, missing) == theirs.get(name, missing) for name in names)

    def __ne__(self, other: object) -> bool:
        return not self == other

    # Equal objects may change, so they have no hash.
    __hash__ = None  # type: ignore[assignment]


class DriverReference(ConfigValue):
    """``provider_config.driver``: which driver a provider section names."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.manage_images = False


class ConfigPool(ConfigValue, abc.ABC):
    """One pool of a provider."""

    ignore_equality: ClassVar[list[str]] = ["provider"]

    def __init__(self) -> None:
        self.name: str = ""
        #: label name -> label object; a set of names where labels have no settings (static).
        self.labels: Any = {}
        self.max_servers: float = math.inf
        self.node_attributes: dict[str, Any] | None = None
        self.priority: int | None = None
        self.ignore_provider_quota = False
        self.azs: list[str] | None = None
        self.provider: Any = None

    @classmethod
    def getCommonSchemaDict(cls) -> dict[Any, Any]:
        """Keys that every pool may have, for a voluptuous schema."""
        return {
            v.Required("name"): str,
            "max-servers": int,
            "node-attributes": dict,
            "priority": int,
        }

    @abc.abstractmethod
    def load(self, pool_config: dict[str, Any]) -> None:
        """Take what one pool section says. Subclasses call this first."""
        self.name = pool_config["name"]
        self.max_servers = pool_config.get("max-servers", math.inf)
        self.node_attributes = pool_config.get("node-attributes")
        self.priority = pool_config.get("priority")


class ProviderConfig(ConfigValue, abc.ABC):
    """One provider section.

    :param provider: the section as it stands in the file.
    """

    def __init__(self, provider: dict[str, Any]) -> None:
        self.provider = provider
        self.name: str = provider["name"]
        self.driver = DriverReference(provider.get("driver") or DEFAULT_DRIVER)
        self.max_concurrency: int = provider.get("max-concurrency", -1)
        self.priority: int | None = provider.get("priority")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    @classmethod
    def getCommonSchemaDict(cls) -> dict[Any, Any]:
        """Keys that every provider may have, for a voluptuous schema."""
        return {
            v.Required("name"): str,
            "driver": str,
            "max-concurrency": int,
            "priority": int,
        }

    @property
    @abc.abstractmethod
    def pools(self) -> dict[str, Any]:
        """Pool name -> `ConfigPool`."""

    @property
    @abc.abstractmethod
    def manage_images(self) -> bool:
        """Does the builder upload images to it?"""

    @abc.abstractmethod
    def load(self, newconfig: Config) -> None:
        """Parse ``self.provider``; append each pool to ``newconfig.labels[name].pools``."""

    @abc.abstractmethod
    def getSchema(self) -> Any:
        """Voluptuous schema of the whole provider section."""

    @abc.abstractmethod
    def getSupportedLabels(self, pool_name: str | None = None) -> set[str]:
        """Label names of one pool, or of all."""


def connection_schema(types: list[str] | None = None) -> dict[Any, Any]:
    """The *connection defaults* keys of config.md 5, for a voluptuous schema.

    :param types: allowed values of ``connection-type``; None = any text.
    """
    return {
        "connection-type": v.Any(*types) if types else str,
        "connection-port": v.All(int, v.Range(min=1, max=65535)),
        "python-path": str,
        "shell-type": v.Any(str, None),
    }


def default_port(connection_type: str | None) -> int:
    """``connection-port`` where the configuration names none."""
    return WINRM_PORT if connection_type == "winrm" else DEFAULT_PORT
