# SPDX-License-Identifier: Apache-2.0
"""Bases of a driver's configuration objects, and schema pieces that drivers share (reference/driver 4 to 6).

Schemas are for voluptuous. It is imported only by the functions that make one, because `nodepool list` needs none.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from nodepool.model.config_value import ConfigValue as ConfigValue

if TYPE_CHECKING:
    from nodepool.config.objects import Config

#: ``driver`` of a provider section that names none (reference/configuration 5).
DEFAULT_DRIVER: Final = "openstack"
#: ``connection-port`` when none is given, by ``connection-type``.
DEFAULT_PORT: Final = 22
WINRM_PORT: Final = 5986
#: Greatest number that a configuration may hold: it must fit in what a cloud, a database or a float can hold.
MAX_INT: Final = 2**63 - 1


class DriverReference(ConfigValue):
    """``provider_config.driver``: which driver a provider section names."""

    def __init__(self, name: str) -> None:
        self.name = name


class ProviderConfig(ConfigValue, abc.ABC):
    """One provider section.

    :param provider: the section as it stands in the file; kept as ``provider``.
    """

    def __init__(self, provider: dict[str, Any]) -> None:
        self.provider = provider
        self.name: str = provider["name"]
        self.driver = DriverReference(provider.get("driver", DEFAULT_DRIVER))
        #: Launches in progress over all pools; negative = no limit.
        self.max_concurrency: int = provider.get("max-concurrency", -1)
        #: Default of the pools; None = 100.
        self.priority: int | None = provider.get("priority")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    @classmethod
    def getCommonSchemaDict(cls) -> dict[Any, Any]:
        """Keys that every provider may have, for a voluptuous schema. Others must be added by the driver."""
        import voluptuous as v

        return {
            v.Required("name"): nonempty(),
            "driver": str,
            "max-concurrency": integer(),
            "priority": integer(),
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
        """Parse ``self.provider``, which conforms to the schema, and announce each pool to its labels.

        For each label of each pool: ``newconfig.labels[name].pools.append(pool)``. A driver with images adds its format
        to ``newconfig.diskimages[name].image_types``. A name that is missing there is reported with file and line.

        :param newconfig: the whole configuration; labels and diskimages are there, other providers may not be.
        :raises Exception: the section cannot be used; the text is shown to the user with file and line.
        """

    @abc.abstractmethod
    def getSchema(self) -> Any:
        """Voluptuous schema of the whole provider section, with `getCommonSchemaDict` in it."""

    def getSupportedLabels(self, pool_name: str | None = None) -> set[str]:
        """Label names of one pool, or of all."""
        return {label for name, pool in self.pools.items() if pool_name in (None, name) for label in pool.labels}


class ConfigPool(ConfigValue, abc.ABC):
    """One pool of a provider."""

    ignore_equality: ClassVar[list[str]] = ["provider"]

    def __init__(self) -> None:
        self.name: str = ""
        #: label name -> label object; a set of names where labels have no settings (static).
        self.labels: Any = {}
        self.max_servers: float = math.inf
        self.node_attributes: dict[str, Any] | None = None
        #: Lower is served first; None = the provider's. See `load`.
        self.priority: int | None = None
        self.ignore_provider_quota = False
        self.azs: list[str] | None = None
        #: The `ProviderConfig`, set by the driver.
        self.provider: Any = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    @classmethod
    def getCommonSchemaDict(cls) -> dict[Any, Any]:
        """Keys that every pool may have, for a voluptuous schema. ``labels`` is not among them."""
        import voluptuous as v

        return {
            v.Required("name"): nonempty(),
            "max-servers": integer(),
            "node-attributes": v.Any(dict, None),
            "priority": integer(),
        }

    @abc.abstractmethod
    def load(self, pool_config: dict[str, Any]) -> None:
        """Take what one pool section says. Subclasses call this first.

        ``priority`` becomes that of the provider if the pool has none and ``self.provider`` is set before.
        """
        self.name = pool_config["name"]
        self.max_servers = pool_config.get("max-servers", math.inf)
        self.node_attributes = pool_config.get("node-attributes")
        self.priority = pool_config.get("priority", getattr(self.provider, "priority", None))


class Connection(NamedTuple):
    """How Zuul logs in to a node: the *connection defaults* of reference/configuration 5."""

    type: str
    port: int
    python_path: str
    shell_type: str | None

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Connection:
        """Read the keys of `connection_schema`; what is missing gets its default, the port by the type."""
        kind = data.get("connection-type") or "ssh"
        return cls(
            kind,
            data.get("connection-port") or (WINRM_PORT if kind == "winrm" else DEFAULT_PORT),
            data.get("python-path") or "auto",
            data.get("shell-type"),
        )

    @classmethod
    def of_static_node(cls, data: Mapping[str, Any]) -> Connection:
        """The same for a static node: the default port is 22 for every type, and ``ssh-port`` is its old name."""
        port = data.get("connection-port") or data.get("ssh-port") or DEFAULT_PORT
        return cls.of({**data, "connection-port": port})


class ImageSettings(ConfigValue):
    """An image as a provider uses it, from the cloud or uploaded (reference/driver 6).

    :param data: the section in the file; connection keys are read from it.
    :param username: login user if the section names none.
    """

    def __init__(self, data: Mapping[str, Any], username: str | None = None) -> None:
        self.name: str = data["name"]
        self.username: str | None = data.get("username", username)
        self.connection_type, self.connection_port, self.python_path, self.shell_type = Connection.of(data)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"


class LabelSettings(ConfigValue):
    """A label of a pool (reference/driver 6). Exactly one of ``diskimage`` and ``cloud_image`` is set by the driver."""

    ignore_equality: ClassVar[list[str]] = ["pool"]

    def __init__(self, name: str, pool: ConfigPool) -> None:
        self.name = name
        self.pool = pool
        self.diskimage: Any = None
        self.cloud_image: Any = None
        self.host_key_checking = True

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"


# -- pieces for schemas --


def integer(minimum: int = -MAX_INT, maximum: int = MAX_INT) -> Any:
    """A whole number in a range. Unlike ``int`` in a schema it refuses ``true`` and ``false``."""
    import voluptuous as v

    return v.All(v.Any(_plain_int, msg="expected int"), v.Range(min=minimum, max=maximum))


def number(minimum: float = -MAX_INT, maximum: float = MAX_INT) -> Any:
    """A number with or without a fraction; not infinite, not ``true``."""
    import voluptuous as v

    return v.All(v.Any(_plain_int, float, msg="expected a number"), v.Range(min=minimum, max=maximum))


def port() -> Any:
    """A TCP port."""
    return integer(1, 65535)


def nonempty() -> Any:
    """A text that is not empty."""
    import voluptuous as v

    return v.All(str, v.Length(min=1))


def connection_schema(types: Sequence[str] = ()) -> dict[Any, Any]:
    """The *connection defaults* keys; read with `Connection.of`.

    :param types: allowed values of ``connection-type``; none = any text.
    """
    import voluptuous as v

    return {
        "connection-type": v.In(list(types)) if types else str,
        "connection-port": port(),
        "python-path": str,
        "shell-type": v.Any(str, None),
    }


def static_connection_schema() -> dict[Any, Any]:
    """The same for a static node; read with `Connection.of_static_node`."""
    return {**connection_schema(["ssh", "winrm", "network_cli"]), "ssh-port": port()}


def _plain_int(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise ValueError("expected int")
