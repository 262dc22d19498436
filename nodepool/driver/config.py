# SPDX-License-Identifier: Apache-2.0
"""Bases of a driver's configuration objects (reference/driver 4 to 6), and what their schemas are made of.

Each key is declared once, see `nodepool.model.config_keys`. A driver may declare its keys, too, or write a schema for
voluptuous.
"""

from __future__ import annotations

import abc
import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from nodepool.driver.framework.key_schema import Problem as Problem
from nodepool.driver.framework.key_schema import Section as Section
from nodepool.driver.framework.key_schema import check_of, fields_of
from nodepool.driver.framework.key_schema import integer as integer
from nodepool.driver.framework.key_schema import nonempty as nonempty
from nodepool.driver.framework.key_schema import number as number
from nodepool.driver.framework.key_schema import port as port
from nodepool.model.config_keys import ANY_MAPPING, FILLED_TEXT, PORT, REQUIRED, TEXT, WHOLE, From, key, keys_of
from nodepool.model.config_keys import ConfigValue as ConfigValue

if TYPE_CHECKING:
    from nodepool.config.objects import Config

#: ``driver`` of a provider section that names none (reference/configuration 5).
DEFAULT_DRIVER: Final = "openstack"
#: ``connection-port`` when none is given, by ``connection-type``.
DEFAULT_PORT: Final = 22
WINRM_PORT: Final = 5986


class DriverReference(ConfigValue):
    """``provider_config.driver``: which driver a provider section names."""

    def __init__(self, name: str) -> None:
        self.name = name


class ImageConversion(NamedTuple):
    """How ``qemu-img`` makes an image of the form that a cloud takes.

    :param source: format of which it is made; diskimage-builder makes that one.
    :param driver: of qemu-img, for what is made.
    :param options: of that driver.
    :param multiple: the disk has a whole number of these, in bytes.
    """

    source: str
    driver: str
    options: str = ""
    multiple: int = 512


class ProviderConfig(ConfigValue, abc.ABC):
    """One provider section.

    :param provider: the section as it stands in the file; kept as ``provider``.
    """

    #: Does ``uploadImage()`` go on with what an interrupted upload of the build has done? See `UploadInterrupted`.
    resumes_uploads: ClassVar[bool] = False
    #: How the builder makes images of the format ``image_type``; None = diskimage-builder makes them.
    image_conversion: ClassVar[ImageConversion | None] = None

    name: str = key(FILLED_TEXT, REQUIRED, "Unique.")
    driver: DriverReference = key(TEXT, DEFAULT_DRIVER, "The kind of provider.", read=False)
    max_concurrency: int = key(
        WHOLE,
        -1,
        "Launches in progress over all its pools; negative = no limit; 0 = the provider handles no request.",
    )
    priority: int | None = key(WHOLE, None, "Of its pools; the lower number is served first.", default_text="100")

    def __init__(self, provider: dict[str, Any]) -> None:
        self.provider = provider
        self.driver = DriverReference(provider.get("driver", DEFAULT_DRIVER))
        # The others when the section was checked, see `load`.
        self.read_keys(provider, ProviderConfig)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    @classmethod
    def getCommonSchemaDict(cls) -> dict[Any, Any]:
        """Keys that every provider may have, for a voluptuous schema. Others must be added by the driver."""
        return fields_of(keys_of(ProviderConfig))

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

    def localProblems(self) -> Iterable[tuple[str, str]]:
        """What keeps this machine from serving the section, for ``config-validate``; default: nothing. After `load`.

        May read files, e.g. one with credentials; contacts nobody.

        :return: key of the section, and a text with the remedy.
        """
        return ()

    def getSupportedLabels(self, pool_name: str | None = None) -> set[str]:
        """Label names of one pool, or of all."""
        return {label for name, pool in self.pools.items() if pool_name in (None, name) for label in pool.labels}


class ConfigPool(ConfigValue, abc.ABC):
    """One pool of a provider."""

    ignore_equality: ClassVar[list[str]] = ["provider"]

    name: str = key(FILLED_TEXT, REQUIRED, "Unique in the provider.")
    max_servers: float = key(
        WHOLE, math.inf, "Nodes at once; 0 or less = the pool declines every request.", default_text="unlimited"
    )
    node_attributes: dict[str, Any] | None = key(
        ANY_MAPPING.or_null(),
        None,
        "Stored as ``attributes`` on every node. Zuul picks executors by ``executor-zone``.",
    )
    priority: int | None = key(
        WHOLE,
        From("provider"),
        "The lower number is served first: a pool leaves a request to pools with a lower number as long as one of them "
        "can serve it and is not paused.",
    )

    def __init__(self) -> None:
        self.name = ""
        #: label name -> label object; a set of names where labels have no settings (static).
        self.labels: Any = {}
        self.ignore_provider_quota = False
        self.azs: Sequence[str | None] | None = None
        #: The `ProviderConfig`, set by the driver.
        self.provider: Any = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    @classmethod
    def getCommonSchemaDict(cls) -> dict[Any, Any]:
        """Keys that every pool may have, for a voluptuous schema. ``labels`` is not among them."""
        return fields_of(keys_of(ConfigPool))

    @abc.abstractmethod
    def load(self, pool_config: dict[str, Any]) -> None:
        """Take what one pool section says: the keys that are declared. Subclasses call this first.

        ``priority`` becomes that of the provider if the pool has none and ``self.provider`` is set before.
        """
        self.read_keys(pool_config)


class Connection(ConfigValue):
    """How Zuul logs in to a node: the *connection defaults* of reference/configuration 5."""

    connection_type: str = key(TEXT, "ssh", "How Zuul connects: ``ssh``, ``winrm``, ``network_cli`` ...")
    connection_port: int = key(PORT, DEFAULT_PORT, "Port that Zuul connects to.", default_text="22; 5986 for ``winrm``")
    python_path: str = key(TEXT, "auto", "Python interpreter on the node, for Ansible.")
    shell_type: str | None = key(TEXT.or_null(), None, "Shell on the node, for Ansible.")

    def read_connection(self, data: Mapping[str, Any]) -> None:
        """Set the attributes of all declared keys; the default of the port depends on the type."""
        self.read_keys(data)
        if self.connection_type == "winrm" and not data.get("connection-port"):
            self.connection_port = WINRM_PORT


class ImageSettings(Connection):
    """An image as a provider uses it, from the cloud or uploaded (reference/driver 6).

    :param data: the section in the file.
    :param username: login user if the section names none.
    """

    name: str = key(FILLED_TEXT, REQUIRED, "What labels call it.")
    username: str | None = key(TEXT.or_null(), None, "Zuul logs in as this user.")

    def __init__(self, data: Mapping[str, Any], username: str | None = None) -> None:
        self.read_connection(data)
        self.username = self.username or username

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"


class LabelSettings(ConfigValue):
    """A label of a pool (reference/driver 6). Exactly one of ``diskimage`` and ``cloud_image`` is set by the driver."""

    ignore_equality: ClassVar[list[str]] = ["pool"]

    name: str = key(FILLED_TEXT, REQUIRED, "As at the top level, where ``min-ready`` and ``max-ready-age`` stand.")

    def __init__(self, name: str, pool: ConfigPool) -> None:
        self.name = name
        self.pool = pool
        self.diskimage: Any = None
        self.cloud_image: Any = None
        self.host_key_checking = True

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"


#: A check of what keys of a section say together, of which the first problem is told; see `check_of`.
section_check: Final = functools.partial(check_of, every=False)
