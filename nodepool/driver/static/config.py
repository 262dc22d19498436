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

from collections.abc import Collection, Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

from nodepool.driver.config import DEFAULT_PORT, ConfigPool, Connection, Problem, mappings, section_check
from nodepool.driver.framework.keyscan import SSH_CONNECTION_TYPES
from nodepool.driver.framework.sections import DeclaredProviderConfig
from nodepool.exceptions import ConfigError
from nodepool.model.config_keys import (
    FILLED_TEXT,
    FLAG,
    PORT,
    REQUIRED,
    TENANTS,
    TEXT,
    TEXTS,
    OneOf,
    Seconds,
    Sections,
    Whole,
    key,
)
from nodepool.plan.static import HostId, HostSpec, slot_of

if TYPE_CHECKING:
    from nodepool.config.objects import Config
    from nodepool.model.node import Node


#: Greatest port of TCP.
MAX_PORT: Final = 65535


def as_list(value: str | list[str]) -> list[str]:
    """A text is one item, whatever blanks are in it."""
    return [value] if isinstance(value, str) else value


class StaticNode(Connection):
    """One entry of ``nodes``: a host."""

    name: str = key(
        FILLED_TEXT,
        REQUIRED,
        "Host name or address. Name, user and port together identify a host; they must be unique in the provider.",
    )
    labels: list[str] = key(
        OneOf((TEXT, TEXTS)),
        REQUIRED,
        "The host can serve any one of them at a time, in each slot. A text is one label.",
        convert=as_list,
    )
    username: str = key(TEXT, "zuul", "Zuul logs in as this user.")
    connection_type: str = key(TEXT, "ssh", "How Zuul connects: ``ssh``, ``winrm``, ``network_cli`` ...")
    connection_port: int = key(PORT, DEFAULT_PORT, "Also for ``winrm``, whose usual port is 5986.")
    ssh_port: int | None = key(PORT, None, "Deprecated: old name of ``connection-port``.")
    host_key: list[str] = key(
        OneOf((TEXT, TEXTS)),
        [],
        "``<type> <base64>``. All of them must be among the keys that the host shows; otherwise the host is not used.",
        convert=as_list,
    )
    host_key_checking: bool = key(
        FLAG, True, "false: the host is never contacted, and ``host-key`` is stored as it is."
    )
    timeout: float = key(Seconds(0, more=True), 5.0, "Time to wait for the host.")
    max_parallel_jobs: int = key(
        Whole(0), 1, "Slots: how many jobs may use the host at a time. Each slot is a node of its own."
    )

    quarantine_after: int | None = key(Whole(0), None, "As in the provider, for this host.")
    allowed_tenants: list[str] | None = key(
        TENANTS, None, "Tenants whose requests may have the host, as in the top-level ``labels``.", default_text="all"
    )

    def __init__(self, data: dict[str, Any]) -> None:
        self.read_keys(data)
        if "connection-port" not in data and self.ssh_port is not None:
            self.connection_port = self.ssh_port
        if data.get("host-key") == "":
            # An empty text is otherwise as good as none. Here it would let a host be used whose key no one compares.
            self.host_key = [""]

    @property
    def id(self) -> HostId:
        return HostId(self.name, self.username, self.connection_port)

    def spec(self, pool: StaticPool) -> HostSpec:
        """The host as the driver works with it."""
        speaks_ssh = self.connection_type in SSH_CONNECTION_TYPES
        return HostSpec(
            self.id,
            pool.name,
            tuple(dict.fromkeys(self.labels)),
            connection_type=self.connection_type,
            shell_type=self.shell_type,
            python_path=self.python_path,
            host_keys=tuple(self.host_key) if speaks_ssh else (),
            check=self.host_key_checking,
            keys_wanted=self.host_key_checking and speaks_ssh,
            slots=self.max_parallel_jobs,
            timeout_seconds=self.timeout,
            quarantine_after=pool.provider.quarantine_after if self.quarantine_after is None else self.quarantine_after,
            attributes=pool.node_attributes,
            allowed_tenants=None if self.allowed_tenants is None else tuple(self.allowed_tenants),
        )


class StaticPool(ConfigPool):
    """Hosts of one pool: ``hosts``; ``labels`` has the names of all their labels."""

    nodes: Any = key(Sections(StaticNode), None, "The hosts. Each has labels of its own.")

    def __init__(self, provider: StaticProviderConfig) -> None:
        super().__init__()
        self.provider: StaticProviderConfig = provider
        self.labels: set[str] = set()
        self.hosts: list[HostSpec] = []
        #: Hosts that have ``allowed-tenants``.
        self.restricted: dict[HostId, Sequence[str]] = {}
        #: Label -> tenants that may have one of its hosts; None = all.
        self.label_tenants: dict[str, frozenset[str] | None] = {}

    def load(self, pool_config: dict[str, Any]) -> None:
        super().load(pool_config)
        for data in pool_config.get("nodes") or []:
            host = StaticNode(data).spec(self)
            self.hosts.append(host)
            self.labels.update(host.labels)
            if host.allowed_tenants is not None:
                self.restricted[host.id] = host.allowed_tenants
            for label in host.labels:
                known = self.label_tenants.get(label, frozenset())
                # A host without a list is for every tenant.
                both = None if known is None or host.allowed_tenants is None else known.union(host.allowed_tenants)
                self.label_tenants[label] = both

    def tenantsOfLabel(self, label: str) -> Collection[str] | None:
        """Of all of its hosts together."""
        tenants = self.label_tenants.get(label)
        return None if tenants is None else sorted(tenants)

    def tenantsOfNode(self, node: Node) -> Sequence[str] | None:
        """Of its host."""
        return self.restricted.get(slot_of(node).host) if self.restricted else None


def duplicate_hosts(provider: dict[str, Any]) -> Iterator[Problem]:
    """Hosts with the same name, user name and port: path inside the provider section, and what is wrong."""
    seen: dict[HostId, str] = {}
    for pool_index, pool in enumerate(provider.get("pools") or []):
        for index, data in enumerate(pool.get("nodes") or []):
            host = StaticNode(data).id
            if host in seen:
                text = (
                    f"host {host} is in pool {seen[host]} already; name, username and connection-port together "
                    "must be unique in a provider (max-parallel-jobs gives a host more slots)"
                )
                yield ["pools", pool_index, "nodes", index, "name"], text
            seen.setdefault(host, pool.get("name", "?"))


class StaticProviderConfig(DeclaredProviderConfig[StaticPool]):
    """One ``providers[]`` section with ``driver: static``."""

    checks: ClassVar[tuple[Any, ...]] = (section_check(duplicate_hosts),)

    quarantine_after: int = key(
        Whole(0),
        0,
        "Failed checks in a row that quarantine a host; 0: none do, and a host that fails is tried again every minute.",
    )
    _pools: dict[str, StaticPool] = key(Sections(StaticPool), None, "The pools of the provider.", name="pools")

    @classmethod
    def without_effect(cls, section: dict[str, Any]) -> Iterator[Problem]:
        """Hosts that are there again later on, where the last place counts, and hosts with an impossible port."""
        places: list[tuple[list[Hashable], Any, HostId]] = [
            (["pools", pool_index, "nodes", index, "name"], pool.get("name"), StaticNode(data).id)
            for pool_index, pool in mappings(section, "pools")
            for index, data in mappings(pool, "nodes")
            if isinstance(data.get("name"), str)
        ]
        last = {host: (path, pool) for path, pool, host in places}
        for path, _, host in places:
            port: Any = host.port
            if isinstance(port, int) and not 1 <= port <= MAX_PORT:
                text = f"there is no port {port}; a daemon leaves the host out"
                yield [*path[:-1], "connection-port"], text
            elif last[host][0] != path:
                text = f"host {host} is in pool {last[host][1]} again, where it counts"
                yield path, f"{text}; name, username and connection-port together must be unique in a provider"

    def hosts(self) -> dict[HostId, HostSpec]:
        """All hosts of all pools."""
        return {host.id: host for pool in self._pools.values() for host in pool.hosts}

    def load(self, newconfig: Config) -> None:
        """Parse the section. Raises ConfigError for a host that is there twice and for an unknown label."""
        for _, problem in duplicate_hosts(self.provider):
            raise ConfigError(f"provider {self.name}: {problem}")
        super().load(newconfig)
