# SPDX-License-Identifier: Apache-2.0
"""The loaded configuration (reference/configuration 2 to 6). Objects compare by value, which reloads rest on."""

from __future__ import annotations

from typing import Any, ClassVar

from nodepool.config.zookeeper import ZooKeeperServer as ZooKeeperServer
from nodepool.config.zookeeper import ZooKeeperSettings
from nodepool.driver.config import ConfigPool, ConfigValue, ProviderConfig


class Label(ConfigValue):
    """One entry of the top-level ``labels``.

    :param min_ready: ready nodes to keep; 0 or less = none.
    :param max_ready_age: seconds; 0 = unlimited.
    """

    ignore_equality: ClassVar[list[str]] = ["pools"]

    def __init__(self, name: str, min_ready: int = 0, max_ready_age: int = 0) -> None:
        self.name = name
        self.min_ready = min_ready
        self.max_ready_age = max_ready_age
        #: Pools that have the label; filled while providers load.
        self.pools: list[ConfigPool] = []


class DiskImage(ConfigValue):
    """One entry of ``diskimages``, with what it inherits (reference/configuration 4)."""

    def __init__(self, name: str) -> None:
        self.name = name
        #: Only a template, never built.
        self.abstract = False
        self.parent: str | None = None
        self.elements: list[str] = []
        self.env_vars: dict[str, str] = {}
        #: Formats to build: the configured ones; providers add theirs.
        self.image_types: set[str] = set()
        self.keep_formats: list[str] = []
        self.metadata: dict[str, Any] = {}
        self.release = ""
        #: Both in seconds.
        self.rebuild_age = 86400
        self.build_timeout = 28800
        self.delete_after_upload = False
        self.pause = False
        self.username = "zuul"
        self.python_path = "auto"
        self.shell_type: str | None = None
        self.dib_cmd = "disk-image-create"


class Config(ZooKeeperSettings):
    """The whole configuration of a daemon."""

    def __init__(self) -> None:
        super().__init__()
        self.path = ""
        self.elements_dir: str | None = None
        self.images_dir: str | None = None
        self.build_log_dir = "/var/log/nodepool/builds"
        self.build_log_retention = 7
        self.max_hold_age = 0
        self.webapp_port = 8005
        self.webapp_listen_address = "0.0.0.0"
        self.labels: dict[str, Label] = {}
        self.diskimages: dict[str, DiskImage] = {}
        self.providers: dict[str, ProviderConfig] = {}
        #: Files beside the configuration that drivers read; a change of one is a change of the configuration.
        self.watched_files: set[str] = set()
        #: tenant -> quota name (``instances``, ``cores``, ``ram``, ...) -> limit.
        self.tenant_resource_limits: dict[str, dict[str, float]] = {}
