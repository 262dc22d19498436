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
              - name: small      # also connection-type, connection-port, python-path, shell-type, username
                cores: 2
                ram: 2048
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from nodepool.driver.config import (
    ConfigPool,
    ImageSettings,
    LabelSettings,
    ProviderConfig,
    connection_schema,
    integer,
    nonempty,
    number,
)

if TYPE_CHECKING:
    from nodepool.config.objects import Config

#: Knobs of the cloud: key in the file -> name in `cloud.Knobs`.
KNOBS: Final = {
    "boot-seconds": "boot_seconds",
    "delete-seconds": "delete_seconds",
    "fail-launches": "fail_launches",
    "quota-errors": "quota_errors",
    "lost-answers": "lost_answers",
    "hang": "hang",
    "limits": "limits",
}


class FakeLabel(LabelSettings):
    """What a node of a label is made of. Nodes come from an image that the cloud has."""

    def __init__(self, pool: FakePool, data: dict[str, Any]) -> None:
        super().__init__(data["name"], pool)
        self.cores: int = data.get("cores", 1)
        self.ram: int = data.get("ram", 1024)
        self.cloud_image: ImageSettings = ImageSettings(data, username="zuul")
        # Nothing answers at the addresses of instances that are only in memory.
        self.host_key_checking = False


class FakePool(ConfigPool):
    """A slice of the cloud."""

    def __init__(self, provider: FakeProviderConfig) -> None:
        super().__init__()
        self.provider = provider
        self.labels: dict[str, FakeLabel] = {}
        self.max_cores: int | None = None
        self.max_ram: int | None = None

    def load(self, pool_config: dict[str, Any]) -> None:
        super().load(pool_config)
        self.max_cores = pool_config.get("max-cores")
        self.max_ram = pool_config.get("max-ram")
        self.ignore_provider_quota = pool_config.get("ignore-provider-quota", False)
        self.azs = pool_config.get("availability-zones")
        for data in pool_config.get("labels", []):
            self.labels[data["name"]] = FakeLabel(self, data)


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
        # Here, because only the launcher and config-validate need it: the other commands start without it.
        import voluptuous as v

        label = {
            v.Required("name"): nonempty(),
            "cores": integer(0),
            "ram": integer(0),
            "username": str,
            **connection_schema(),
        }
        pool = {
            **ConfigPool.getCommonSchemaDict(),
            v.Required("name"): nonempty(),
            "max-cores": integer(),
            "max-ram": integer(),
            "ignore-provider-quota": bool,
            "availability-zones": [str],
            "labels": [label],
        }
        schema = {
            **ProviderConfig.getCommonSchemaDict(),
            "cloud": nonempty(),
            "launch-retries": integer(1),
            "launch-timeout": number(0),
            "boot-seconds": number(0),
            "delete-seconds": number(0),
            "fail-launches": integer(0),
            "quota-errors": integer(0),
            "lost-answers": integer(0),
            "hang": bool,
            "limits": {str: number(0)},
            "pools": [pool],
        }
        return v.Schema(schema)
