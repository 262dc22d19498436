# SPDX-License-Identifier: Apache-2.0
"""Configuration of the fake driver.

::

    providers:
      - name: nowhere
        driver: fake
        cloud: demo              # clouds of the same name are the same cloud; default: the provider's name
        boot-seconds: 2
        limits: {instances: 20, cores: 40}
        pools:
          - name: main
            max-servers: 10
            labels:
              - name: small
                cores: 2
                ram: 2048
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import voluptuous as v

from nodepool.driver.config import ConfigPool, ConfigValue, ProviderConfig, connection_schema, default_port

if TYPE_CHECKING:
    from nodepool.config.objects import Config

#: Knobs of the cloud: key in the file -> name in `cloud.Knobs`.
KNOBS: dict[str, str] = {
    "boot-seconds": "boot_seconds",
    "delete-seconds": "delete_seconds",
    "fail-launches": "fail_launches",
    "quota-errors": "quota_errors",
    "lost-answers": "lost_answers",
    "hang": "hang",
    "limits": "limits",
}


class FakeLabel(ConfigValue):
    """What a node of a label is made of.

    ``pool`` points back; comparing it would never end.
    """

    ignore_equality: ClassVar[list[str]] = ["pool"]

    def __init__(self, pool: FakePool, data: dict[str, Any]) -> None:
        self.pool = pool
        self.name: str = data["name"]
        self.cores: int = data.get("cores", 1)
        self.ram: int = data.get("ram", 1024)
        self.username: str = data.get("username", "zuul")
        self.python_path: str = data.get("python-path", "auto")
        self.shell_type: str | None = data.get("shell-type")
        self.connection_type: str = data.get("connection-type", "ssh")
        self.connection_port: int = data.get("connection-port", default_port(self.connection_type))
        self.host_key_checking = False
        self.cloud_image: str | None = self.name
        self.diskimage = None

    def __repr__(self) -> str:
        return f"<FakeLabel {self.name}>"


class FakePool(ConfigPool):
    """A slice of the cloud."""

    def __init__(self, provider: FakeProviderConfig) -> None:
        super().__init__()
        self.provider = provider
        self.max_cores: int | None = None
        self.max_ram: int | None = None

    def load(self, pool_config: dict[str, Any]) -> None:
        super().load(pool_config)
        self.max_cores = pool_config.get("max-cores")
        self.max_ram = pool_config.get("max-ram")
        self.ignore_provider_quota = pool_config.get("ignore-provider-quota", False)
        self.azs = pool_config.get("availability-zones")
        self.labels = {data["name"]: FakeLabel(self, data) for data in pool_config.get("labels", [])}


class FakeProviderConfig(ProviderConfig):
    """One ``providers[]`` section with ``driver: fake``."""

    def __init__(self, provider: dict[str, Any]) -> None:
        super().__init__(provider)
        self._pools: dict[str, FakePool] = {}
        self.cloud = ""
        self.launch_retries = 3
        self.launch_timeout = 60.0
        self.knobs: dict[str, Any] = {}

    @property
    def pools(self) -> dict[str, FakePool]:
        return self._pools

    @property
    def manage_images(self) -> bool:
        return False

    def load(self, newconfig: Config) -> None:
        data = self.provider
        self.cloud = data.get("cloud", self.name)
        self.launch_retries = data.get("launch-retries", 3)
        self.launch_timeout = float(data.get("launch-timeout", 60))
        self.knobs = {name: data[key] for key, name in KNOBS.items() if key in data}
        for pool_data in data.get("pools", []):
            pool = FakePool(self)
            pool.load(pool_data)
            self._pools[pool.name] = pool
            for label in pool.labels:
                newconfig.labels[label].pools.append(pool)

    def getSchema(self) -> Any:
        positive = v.All(v.Any(int, float), v.Range(min=0))
        label = {
            v.Required("name"): str,
            "cores": int,
            "ram": int,
            "username": str,
            **connection_schema(),
        }
        pool = {
            **ConfigPool.getCommonSchemaDict(),
            "max-cores": int,
            "max-ram": int,
            "ignore-provider-quota": bool,
            "availability-zones": [str],
            "labels": [label],
        }
        schema = {
            **ProviderConfig.getCommonSchemaDict(),
            "cloud": str,
            "launch-retries": v.All(int, v.Range(min=1)),
            "launch-timeout": positive,
            "boot-seconds": positive,
            "delete-seconds": positive,
            "fail-launches": int,
            "quota-errors": int,
            "lost-answers": int,
            "hang": bool,
            "limits": {str: v.Any(int, float)},
            "pools": [pool],
        }
        return v.Schema(schema)

    def getSupportedLabels(self, pool_name: str | None = None) -> set[str]:
        pools = [pool for pool in self._pools.values() if pool_name in (None, pool.name)]
        return {label for pool in pools for label in pool.labels}
