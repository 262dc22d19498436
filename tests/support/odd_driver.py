# SPDX-License-Identifier: Apache-2.0
"""A driver ``odd`` in a directory, whose methods do what a test says."""

from __future__ import annotations

from pathlib import Path

from nodepool.driver.registry import Drivers

DRIVER = """
from nodepool.driver import ConfigPool, Driver, Provider, ProviderConfig
import voluptuous as v

class Pool(ConfigPool):
    def load(self, pool_config):
        super().load(pool_config)

class Config_(ProviderConfig):
    def __init__(self, provider):
        super().__init__(provider)
        self._pools = {}
    @property
    def pools(self): return self._pools
    @property
    def manage_images(self): return False
    def load(self, newconfig): LOAD
    def getSchema(self): SCHEMA
    def getSupportedLabels(self, pool_name=None): return set()

class OddDriver(Driver):
    name = "odd"
    def getProviderConfig(self, provider): CONFIG
    def getProvider(self, provider_config): raise NotImplementedError
"""


def write_odd_driver(directory: Path, load: str, schema: str, config: str) -> None:
    """Writes it into a directory of drivers, and loads these.

    :param load: body of ``ProviderConfig.load``; ``schema``: of ``getSchema``; ``config``: of ``getProviderConfig``.
    """
    package = directory / "odd"
    package.mkdir(parents=True)
    text = DRIVER.replace("LOAD", load).replace("SCHEMA", schema).replace("CONFIG", config)
    (package / "__init__.py").write_text(text, encoding="utf-8")
    Drivers.load([str(directory)])
