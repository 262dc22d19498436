# SPDX-License-Identifier: Apache-2.0
"""Fixtures for tests of drivers (a cloud, a launcher that uses it), and for those of the command line."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from simulators.openstack import OpenStackSimulator
from tests.support.cloud_site import CloudSite, assert_unharmed
from tests.support.clouds import openstack_section
from tests.support.command_line import CommandLine
from tests.support.launcher_config import StaticHost, StaticProvider, write_config
from tests.support.openstack_place import Place
from tests.support.pool_znodes import PoolZnodes
from tests.support.sshd import SshServer
from tests.support.zookeeper import ZooKeeperServer


@pytest.fixture
def site(tmp_path: Path, zookeeper: ZooKeeperServer, chroot: str, znodes: PoolZnodes, sshd: SshServer) -> CloudSite:
    """For a launcher with a cloud of its own."""
    return CloudSite(tmp_path, zookeeper, chroot, znodes, sshd)


@pytest.fixture
def simulator() -> Iterator[OpenStackSimulator]:
    """A cloud for each test; in the end no node may ever have had two servers."""
    with OpenStackSimulator() as cloud:
        yield cloud
        assert_unharmed(cloud)


@pytest.fixture
def place(
    simulator: OpenStackSimulator,
    site: CloudSite,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Place]:
    """Change ``section`` and call `Place.launch`."""
    file = simulator.write_clouds_yaml(site.directory / "clouds.yaml")
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(file))
    section = openstack_section(site.sshd.port)
    section["diskimages"] = [{"name": "built", "connection-port": site.sshd.port}]
    made = Place(simulator, site.znodes, section, file)

    with site.running(made):
        yield made


@pytest.fixture
def neighbour(place: Place) -> Iterator[OpenStackSimulator]:
    """Another cloud with a provider ``cloud-b``, which has the label ``other``; its nodes are left in it."""
    with OpenStackSimulator() as cloud:
        section = {**place.section, "name": "cloud-b", "cloud": "neighbour", "pools": [dict(place.pool)]}
        section["pools"][0]["labels"] = [{**place.label, "name": "other"}]
        place.others.append(section)
        place.clouds["neighbour"] = cloud.clouds_yaml_entry()
        place.write_clouds()
        yield cloud


@pytest.fixture
def nodepool(tmp_path: Path, zookeeper: ZooKeeperServer, chroot: str) -> CommandLine:
    """The command line, for a static provider ``lab``."""
    write_config(tmp_path / "nodepool.yaml", zookeeper, chroot, [StaticProvider([StaticHost("127.1.0.1")], name="lab")])
    return CommandLine(tmp_path / "nodepool.yaml")


@pytest.fixture
def clouds(simulator: OpenStackSimulator, nodepool: CommandLine, tmp_path: Path) -> CommandLine:
    """The command line with the providers cloud-a and cloud-b in one cloud, and cloud-c in one that is away."""
    entry = simulator.clouds_yaml_entry()
    away = {**entry, "auth": {**entry["auth"], "auth_url": "http://127.0.0.1:1/v3"}}
    file = tmp_path / "clouds.yaml"
    file.write_text(yaml.safe_dump({"clouds": {"simulator": entry, "away": away}}), encoding="utf-8")
    nodepool.environment["OS_CLIENT_CONFIG_FILE"] = str(file)
    settings = yaml.safe_load(nodepool.config.read_text(encoding="utf-8"))
    settings["diskimages"] = [{"name": "debian", "formats": ["raw"]}]
    for name, cloud in (("cloud-a", "simulator"), ("cloud-b", "simulator"), ("cloud-c", "away")):
        image = {"name": "debian", "pause": name == "cloud-b"}
        section = {"name": name, "driver": "openstack", "cloud": cloud, "rate": 0, "diskimages": [image], "pools": []}
        settings["providers"].append(section)
    nodepool.config.write_text(yaml.safe_dump(settings), encoding="utf-8")
    return nodepool


LAB_NODE = {
    "type": ["small", "big"],
    "provider": "lab",
    "external_id": "host-1",
    "public_ipv4": "127.1.0.1",
    "connection_port": 22,
    "username": "zuul",
}


@pytest.fixture
def add_node(znodes: PoolZnodes) -> Callable[..., str]:
    """Puts a node of ``lab`` into ZooKeeper and returns its id."""

    def add(**fields: Any) -> str:
        return znodes.add_node(**{"state": "ready", "state_time": time.time() - 3600, **LAB_NODE, **fields})

    return add
