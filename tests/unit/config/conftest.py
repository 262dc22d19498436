# SPDX-License-Identifier: Apache-2.0
"""Configuration files of a test, with the keys of ZooKeeper that each needs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Protocol

import pytest

from nodepool.config.assembly import validate, validate_here
from nodepool.config.loader import load_config
from nodepool.config.objects import Config
from nodepool.config.problems import Problem, Severity
from nodepool.driver.registry import Drivers
from nodepool.exceptions import ConfigError

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


#: The first two lines of each file.
HEAD: Final = "zookeeper-servers: [{host: zk}]\nzookeeper-tls: {cert: c, key: k, ca: a}\n"


def refuse(path: str, secure: str | None) -> None:
    """As a validator does: ConfigError with all that is no warning."""
    if found := [str(one) for one in validate(path, secure) if one.severity is not Severity.WARNING]:
        raise ConfigError("\n".join(found))


class Files:
    """``f.yaml``, and a secure file ``s.yaml``; texts have no directories."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.main, self.secure = directory / "f.yaml", directory / "s.yaml"

    def write(self, text: str, secure: str | None = None) -> tuple[str, str | None]:
        """Paths of the files; a text that has no ``zookeeper-servers`` stands below `HEAD`."""
        self.main.write_text(text if "zookeeper-servers" in text else HEAD + text, encoding="utf-8")
        if secure is None:
            return str(self.main), None
        self.secure.write_text(secure, encoding="utf-8")
        return str(self.main), str(self.secure)

    def load(self, text: str, secure: str | None = None) -> Config:
        """As a daemon does."""
        return load_config(*self.write(text, secure))

    def refused(self, text: str, secure: str | None = None, *, strict: bool = True) -> list[str]:
        """Lines of the error of a daemon; or of all that a validator refuses."""
        with pytest.raises(ConfigError) as caught:
            (refuse if strict else load_config)(*self.write(text, secure))
        return self.short(str(caught.value)).splitlines()

    def problems(self, text: str, secure: str | None = None) -> list[Problem]:
        return validate(*self.write(text, secure))

    def here(self, text: str, secure: str | None = None) -> list[str]:
        """What ``config-validate`` prints."""
        return [self.short(f"{one.severity.value}: {one}") for one in validate_here(*self.write(text, secure))]

    def short(self, text: str) -> str:
        return text.replace(f"{self.directory}/", "")


class OddDriver(Protocol):
    """Makes a driver ``odd`` whose methods do what the test says."""

    def __call__(self, load: str = ..., schema: str = ..., config: str = ...) -> None: ...


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


@pytest.fixture
def odd_driver(tmp_path: Path) -> Iterator[OddDriver]:
    def make(
        load: str = "pass", schema: str = "return {str: object}", config: str = "return Config_(provider)"
    ) -> None:
        package = tmp_path / "drivers" / "odd"
        package.mkdir(parents=True)
        text = DRIVER.replace("LOAD", load).replace("SCHEMA", schema).replace("CONFIG", config)
        (package / "__init__.py").write_text(text, encoding="utf-8")
        Drivers.load([str(package.parent)])

    yield make
    Drivers.load([])
    sys.modules.pop("nodepool.driver.odd", None)
