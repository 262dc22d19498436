# SPDX-License-Identifier: Apache-2.0
"""Configuration of the static driver (reference/configuration 8).

::

    providers:
      - name: lab
        driver: static
        pools:
          - name: main
            nodes:
              - name: host1.example.org
                labels: [small]
                host-key: ssh-ed25519 AAAA...
                max-parallel-jobs: 2
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import TYPE_CHECKING, Any, Final

import voluptuous as v

from nodepool.driver.config import ConfigPool, Connection, ProviderConfig, static_connection_schema
from nodepool.driver.framework.keyscan import SSH_CONNECTION_TYPES
from nodepool.exceptions import ConfigError
from nodepool.plan.static_hosts import HostId, HostSpec

if TYPE_CHECKING:
    from nodepool.config.objects import Config

DEFAULT_USERNAME: Final = "zuul"
DEFAULT_TIMEOUT_SECONDS: Final = 5


def as_list(value: str | list[str] | None) -> list[str]:
    """A text is one item, whatever blanks are in it."""
    if value is None:
        return []
    return [value] if isinstance(value, str) else list(value)


def host_id(data: dict[str, Any]) -> HostId:
    """Identity of a host from its section."""
    return HostId(data["name"], data.get("username", DEFAULT_USERNAME), Connection.of_static_node(data).port)


class StaticPool(ConfigPool):
    """Hosts of one pool: ``hosts``; ``labels`` has the names of all their labels."""

    def __init__(self) -> None:
        super().__init__()
        self.labels: set[str] = set()
        self.hosts: list[HostSpec] = []

    def load(self, pool_config: dict[str, Any]) -> None:
        super().load(pool_config)
        for data in pool_config.get("nodes") or []:
            host = self._host(data)
            self.hosts.append(host)
            self.labels.update(host.labels)

    def _host(self, data: dict[str, Any]) -> HostSpec:
        connection = Connection.of_static_node(data)
        speaks_ssh = connection.type in SSH_CONNECTION_TYPES
        check = data.get("host-key-checking", True)
        return HostSpec(
            host_id(data),
            self.name,
            tuple(dict.fromkeys(as_list(data["labels"]))),
            connection_type=connection.type,
            shell_type=connection.shell_type,
            python_path=connection.python_path,
            host_keys=tuple(as_list(data.get("host-key"))) if speaks_ssh else (),
            check=check,
            keys_wanted=check and speaks_ssh,
            slots=data.get("max-parallel-jobs", 1),
            timeout_seconds=float(data.get("timeout", DEFAULT_TIMEOUT_SECONDS)),
            attributes=self.node_attributes,
        )


class StaticProviderConfig(ProviderConfig):
    """One ``providers[]`` section with ``driver: static``."""

    def __init__(self, provider: dict[str, Any]) -> None:
        super().__init__(provider)
        self._pools: dict[str, StaticPool] = {}

    @property
    def pools(self) -> dict[str, StaticPool]:
        return self._pools

    @property
    def manage_images(self) -> bool:
        return False

    def hosts(self) -> dict[HostId, HostSpec]:
        """All hosts of all pools."""
        return {host.id: host for pool in self._pools.values() for host in pool.hosts}

    def load(self, newconfig: Config) -> None:
        """Parse the section. Raises ConfigError for a host that is there twice and for an unknown label."""
        for _, problem in duplicate_hosts(self.provider):
            raise ConfigError(f"provider {self.name}: {problem}")
        for section in self.provider.get("pools") or []:
            pool = StaticPool()
            pool.provider = self
            pool.load(section)
            self._pools[pool.name] = pool
            for label in sorted(pool.labels):
                if label not in newconfig.labels:
                    raise ConfigError(
                        f"provider {self.name}, pool {pool.name}: label {label!r} is not defined; "
                        "add it to the top-level labels"
                    )
                newconfig.labels[label].pools.append(pool)

    def getSchema(self) -> Any:
        """Schema of the whole section; it also refuses a host that is there twice."""
        node = {
            v.Required("name"): str,
            v.Required("labels"): v.Any(str, [str]),
            "host-key": v.Any(str, [str]),
            "host-key-checking": bool,
            "timeout": v.All(v.Any(int, float), v.Range(min=0, min_included=False)),
            "username": str,
            "max-parallel-jobs": v.All(int, v.Range(min=0)),
            **static_connection_schema(),
        }
        pool = {**ConfigPool.getCommonSchemaDict(), "nodes": [node]}
        return v.Schema(v.All({**ProviderConfig.getCommonSchemaDict(), "pools": [pool]}, _refuse_duplicates))


def duplicate_hosts(provider: dict[str, Any]) -> Iterator[tuple[list[Hashable], str]]:
    """Hosts with the same name, user name and port: path inside the provider section, and what is wrong."""
    seen: dict[HostId, str] = {}
    for pool_index, pool in enumerate(provider.get("pools") or []):
        for index, data in enumerate(pool.get("nodes") or []):
            host = host_id(data)
            if host in seen:
                text = (
                    f"host {host} is in pool {seen[host]} already; name, username and connection-port together "
                    "must be unique in a provider (max-parallel-jobs gives a host more slots)"
                )
                yield ["pools", pool_index, "nodes", index, "name"], text
            seen.setdefault(host, pool.get("name", "?"))


def _refuse_duplicates(provider: dict[str, Any]) -> dict[str, Any]:
    problems = [v.Invalid(text, path=path) for path, text in duplicate_hosts(provider)]
    if problems:
        raise v.MultipleInvalid(problems)
    return provider
