# SPDX-License-Identifier: Apache-2.0
"""Loads the configuration file and the secure file (config.md 1)."""

from __future__ import annotations

import os
from typing import Any

import yaml

from nodepool.config.objects import Config, Label, ZooKeeperServer
from nodepool.driver.registry import Drivers
from nodepool.exceptions import ConfigError


def load_config(path: str, secure_path: str | None = None, *, strict: bool = False) -> Config:
    """Load a configuration. Raises ConfigError."""
    try:
        with open(path, encoding="utf-8") as handle:
            data: dict[str, Any] = yaml.safe_load(handle) or {}
    except (OSError, yaml.YAMLError) as error:
        raise ConfigError(f"{path}: {error}") from error
    config = Config()
    config.path = path
    for server in data.get("zookeeper-servers", []):
        config.zookeeper_servers.append(ZooKeeperServer(server["host"], server.get("port", 2281), server.get("chroot")))
    tls = data.get("zookeeper-tls", {})
    config.zookeeper_tls_cert, config.zookeeper_tls_key = tls.get("cert"), tls.get("key")
    config.zookeeper_tls_ca = tls.get("ca")
    config.zookeeper_timeout = data.get("zookeeper-timeout", 10.0)
    for label in data.get("labels", []):
        config.labels[label["name"]] = Label(label["name"], label.get("min-ready", 0), label.get("max-ready-age", 0))
    for section in data.get("providers", []):
        provider = Drivers.get(section.get("driver", "openstack")).getProviderConfig(section)
        provider.load(config)
        config.providers[provider.name] = provider
    return config


class ConfigSource:
    """A configuration file and its secure file; parsed only when one of them changed."""

    def __init__(self, path: str, secure_path: str | None = None) -> None:
        self._path = path
        self._secure_path = secure_path
        self._loaded: tuple[int | None, ...] | None = None

    def _times(self) -> tuple[int | None, ...]:
        times: list[int | None] = []
        for path in (self._path, self._secure_path):
            try:
                times.append(None if path is None else os.stat(path).st_mtime_ns)
            except OSError:
                times.append(None)
        return tuple(times)

    def changed(self) -> bool:
        """Differs the modification time of a file from what it was at the last `load`?"""
        return self._times() != self._loaded

    def load(self) -> Config:
        """Load both files. Raises ConfigError."""
        self._loaded = self._times()
        return load_config(self._path, self._secure_path)
