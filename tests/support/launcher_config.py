# SPDX-License-Identifier: Apache-2.0
"""Writes nodepool.yaml for launchers with static hosts or the in-memory cloud."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import yaml

from tests.support.certificates import Certificates
from tests.support.zookeeper import ZooKeeperServer
from tests.support.zookeeper_ensemble import ZooKeeperEnsemble


@dataclass(frozen=True)
class StaticHost:
    """One entry of a static pool's ``nodes``."""

    name: str
    labels: Sequence[str] = ("small",)
    port: int = 22
    username: str = "zuul"
    check: bool = False
    host_keys: Sequence[str] = ()
    slots: int = 1

    def as_config(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "labels": list(self.labels),
            "connection-port": self.port,
            "username": self.username,
            "host-key-checking": self.check,
            "host-key": list(self.host_keys),
            "max-parallel-jobs": self.slots,
        }


class Provider(Protocol):
    """An entry of ``providers``."""

    name: str

    @property
    def labels(self) -> Iterable[str]:
        """Labels that it offers."""

    @property
    def slots(self) -> int:
        """How many nodes it has when nobody asks for one."""

    def as_config(self) -> dict[str, Any]: ...


@dataclass
class StaticProvider:
    """A provider with one static pool."""

    hosts: Sequence[StaticHost]
    name: str = "static-one"
    pool: str = "main"
    pool_settings: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def labels(self) -> set[str]:
        return {label for host in self.hosts for label in host.labels}

    @property
    def slots(self) -> int:
        return sum(host.slots for host in self.hosts)

    def as_config(self) -> dict[str, Any]:
        pool = {"name": self.pool, "nodes": [host.as_config() for host in self.hosts], **self.pool_settings}
        return {"name": self.name, "driver": "static", "pools": [pool], **self.settings}


@dataclass
class FakeProvider:
    """A provider of our in-memory cloud, which launches nodes. Its cloud dies with the launcher."""

    labels: Sequence[str]
    name: str = "cloud-one"
    slots: int = 0
    settings: Mapping[str, Any] = field(default_factory=dict)
    pool_settings: Mapping[str, Any] = field(default_factory=dict)

    def as_config(self) -> dict[str, Any]:
        pool = {"name": "main", "labels": [{"name": label} for label in self.labels], **self.pool_settings}
        return {"name": self.name, "driver": "fake", "pools": [pool], **self.settings}


@dataclass
class MetastaticProvider:
    """A metastatic provider with one pool; each label stands on ``backing``."""

    labels: Sequence[str]
    backing: str
    name: str = "shared"
    slots: int = 0
    rules: Mapping[str, Any] = field(default_factory=dict)
    pool_settings: Mapping[str, Any] = field(default_factory=dict)

    def as_config(self) -> dict[str, Any]:
        labels = [{"name": label, "backing-label": self.backing, **self.rules} for label in self.labels]
        pool = {"name": "main", "labels": labels, **self.pool_settings}
        return {"name": self.name, "driver": "metastatic", "pools": [pool]}


def static_hosts(count: int, labels: Sequence[str] = ("small",), **settings: Any) -> list[StaticHost]:
    """``count`` hosts with different loopback addresses, from 127.1.0.1 up."""
    return [StaticHost(f"127.1.{number // 250}.{number % 250 + 1}", labels, **settings) for number in range(count)]


def zookeeper_sections(
    zookeeper: ZooKeeperServer | ZooKeeperEnsemble,
    chroot: str,
    session_seconds: float,
    *,
    ports: Sequence[int] = (),
    certificates: Certificates | None = None,
) -> dict[str, Any]:
    """The keys that lead to a ZooKeeper; see `write_config`."""
    return {
        "zookeeper-servers": [
            {"host": "127.0.0.1", "port": port, "chroot": chroot} for port in ports or zookeeper.tls_ports
        ],
        "zookeeper-tls": (certificates or zookeeper.certificates).section(),
        "zookeeper-timeout": session_seconds,
    }


def write_config(
    path: Path,
    zookeeper: ZooKeeperServer | ZooKeeperEnsemble,
    chroot: str,
    providers: Iterable[Provider],
    *,
    session_seconds: float = 10.0,
    labels: Mapping[str, Mapping[str, Any]] | None = None,
    extra: Mapping[str, Any] | None = None,
    zookeeper_ports: Sequence[int] = (),
    certificates: Certificates | None = None,
) -> None:
    """Writes a configuration for a launcher.

    :param session_seconds: ``zookeeper-timeout``: how long a killed launcher's locks live on.
    :param labels: settings of labels; labels that the hosts name need not be here.
    :param extra: other top-level keys.
    :param zookeeper_ports: of relays on 127.0.0.1 to the TLS ports of ZooKeeper; empty: it is asked directly.
    :param certificates: where the reader of the file finds them; None: where they are.
    """
    providers = list(providers)
    names = {label for provider in providers for label in provider.labels} | set(labels or {})
    config = {
        **zookeeper_sections(zookeeper, chroot, session_seconds, ports=zookeeper_ports, certificates=certificates),
        "labels": [{"name": name, **(labels or {}).get(name, {})} for name in sorted(names)],
        "providers": [provider.as_config() for provider in providers],
        **(extra or {}),
    }
    # The one in C is ten times faster, which counts for thousands of labels.
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    path.write_text(yaml.dump(config, Dumper=dumper, sort_keys=False), encoding="utf-8")
