# SPDX-License-Identifier: Apache-2.0
"""The loaded configuration (reference/configuration 2 to 6). Objects compare by value, which reloads depend on."""

from __future__ import annotations

from typing import Any, ClassVar, Final

from nodepool.config.traces import TracingSettings
from nodepool.config.webapp import WebappSettings
from nodepool.config.zookeeper import ZooKeeperServer as ZooKeeperServer
from nodepool.config.zookeeper import ZooKeeperSettings
from nodepool.driver.config import ConfigPool, ConfigValue, ImageConversion, ProviderConfig
from nodepool.model.config_keys import (
    ANY_MAPPING,
    FILLED_TEXT,
    FLAG,
    NOT_GIVEN,
    REQUIRED,
    TEXT,
    TEXTS,
    WHOLE,
    MappingOf,
    Sections,
    TextOrNumber,
    ValueType,
    Whole,
    key,
)

#: Of a tenant. One that means no number must not let the tenant take everything.
LIMIT: Final = Whole(instead=0)


class Label(ConfigValue):
    """One entry of the top-level ``labels``."""

    ignore_equality: ClassVar[list[str]] = ["pools"]

    name: str = key(FILLED_TEXT, REQUIRED, "What jobs ask for. Unique.")
    min_ready: int = key(
        WHOLE,
        0,
        "How many unused nodes to keep ready; 0 or less = none. Static hosts are always ready.",
    )
    max_ready_age: int = key(
        Whole(instead=NOT_GIVEN),
        0,
        "Age at which a ready node that nobody used is replaced; 0 = never.",
        unit="seconds",
    )

    def __init__(self, name: str) -> None:
        self.read_keys({"name": name})
        #: Pools that have the label; filled while providers load.
        self.pools: list[ConfigPool] = []


class DiskImage(ConfigValue):
    """One entry of ``diskimages``, with what it inherits (reference/configuration 4)."""

    name: str = key(FILLED_TEXT, REQUIRED, "Unique.")
    abstract: bool = key(FLAG, False, "true: only a parent of others, never built.")
    parent: str | None = key(FILLED_TEXT, None, "Image of which this one has all that it does not say itself.")
    image_types: set[str] = key(TEXTS, set(), "Formats to build. Providers add theirs.", name="formats", convert=set)
    keep_formats: list[str] = key(TEXTS, [], "Formats that ``delete-after-upload`` keeps.", convert=list)
    delete_after_upload: bool = key(
        FLAG, False, "true: a local file is removed as soon as every provider that needs it has it."
    )
    rebuild_age: int = key(Whole(instead=NOT_GIVEN), 86400, "Age at which the image is built again.", unit="seconds")
    build_timeout: int = key(Whole(instead=NOT_GIVEN), 28800, "Limit of a build.", unit="seconds")
    release: str = key(TextOrNumber(), "", "``DIB_RELEASE`` of the build.", convert=str)
    elements: list[str] = key(TEXTS, [], "Elements of diskimage-builder; those of the parent come first.")
    env_vars: dict[str, str] = key(MappingOf(TEXT), {}, "Environment of the build, with that of the parent.")
    pause: bool = key(FLAG, False, "true: the image is not built.")
    username: str = key(TEXT, "zuul", "Zuul logs in as this user.")
    python_path: str = key(TEXT, "auto", "Python interpreter on the node, for Ansible.")
    shell_type: str | None = key(TEXT.or_null(), None, "Shell on the node, for Ansible.")
    dib_cmd: str = key(TEXT, "disk-image-create", "Command of a build; it may have arguments.")
    metadata: dict[str, Any] = key(ANY_MAPPING, {}, "Properties of the image in every cloud, with those of the parent.")

    def __init__(self, name: str) -> None:
        self.read_keys({"name": name})
        #: Formats that are made of another one, and how. Providers add theirs.
        self.conversions: dict[str, ImageConversion] = {}

    @property
    def meta(self) -> dict[str, Any]:
        """``metadata``, as it was called in 11.0.0."""
        return self.metadata

    @property
    def keep_image_types(self) -> set[str]:
        """``keep_formats``, as it was called in 11.0.0."""
        return set(self.keep_formats)


class TenantLimits(ConfigValue):
    """The keys of an entry of ``tenant-resource-limits``; an attribute, with hyphens, is the name of a quota."""

    #: Limit the resource of that name.
    other_keys: ClassVar[ValueType] = LIMIT

    tenant_name: str = key(FILLED_TEXT, REQUIRED, "Tenant of Zuul. Unique.")
    instances: int = key(LIMIT, None, "Nodes.", name="max-servers", default_text="unlimited")
    cores: int = key(LIMIT, None, "Cores.", name="max-cores", default_text="unlimited")
    ram: int = key(LIMIT, None, "Memory.", name="max-ram", unit="MiB", default_text="unlimited")
    volumes: int = key(LIMIT, None, "Volumes.", name="max-volumes", default_text="unlimited")
    volume_gb: int = key(LIMIT, None, "Space of volumes.", name="max-volume-gb", unit="GB", default_text="unlimited")


class TopLevel(WebappSettings, TracingSettings):
    """The keys of a file, besides those of `ZooKeeperSettings`."""

    labels: dict[str, Label] = key(Sections(Label), None, "What jobs may ask for.")
    max_hold_age: int = key(
        WHOLE,
        0,
        "How long a node may stay in ``hold``; 0 or less = no limit. The limit that Zuul gave to a held node counts as "
        "well, the smaller one wins.",
        unit="seconds",
    )
    providers: dict[str, ProviderConfig] = key(Sections(ProviderConfig), None, "Where nodes come from.")
    #: tenant -> quota name (``instances``, ``cores``, ``ram``, ...) -> limit.
    tenant_resource_limits: dict[str, dict[str, float]] = key(
        Sections(TenantLimits), None, "What a tenant of Zuul may use at a time."
    )
    diskimages: dict[str, DiskImage] = key(Sections(DiskImage), None, "Images, for the image builder.")
    elements_dir: str | None = key(FILLED_TEXT, None, "``ELEMENTS_PATH`` of builds. For the image builder.")
    images_dir: str | None = key(FILLED_TEXT, None, "Directory of image files. For the image builder.")
    build_log_dir: str = key(
        FILLED_TEXT, "/var/log/nodepool/builds", "Directory of a log for each build. For the image builder."
    )
    build_log_retention: int = key(
        Whole(instead=NOT_GIVEN), 7, "Old logs that are kept of each image; negative = all. For the image builder."
    )


class Config(ZooKeeperSettings, TopLevel):
    """The whole configuration of a daemon."""

    def __init__(self) -> None:
        super().__init__()
        self.path = ""
        #: Begin of the checksum of the file.
        self.digest = ""
        self.labels = {}
        self.diskimages = {}
        self.providers = {}
        self.tenant_resource_limits = {}
        self.webapp_authenticators = []
        self.webapp_operators = []
        #: Files beside the configuration that drivers read; a change of one is a change of the configuration.
        self.watched_files: set[str] = set()
