# SPDX-License-Identifier: Apache-2.0
"""Fixtures for tests of drivers (a cloud, a launcher that uses it), and for those of the command line."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nodepool.testing.aws import AwsSimulator
from nodepool.testing.azure import AzureSimulator
from nodepool.testing.gce import GceSimulator
from nodepool.testing.ibmvpc import IbmVpcSimulator
from nodepool.testing.openstack import OpenStackSimulator
from tests.support.aws_place import AwsPlace
from tests.support.aws_provider import aws_section
from tests.support.azure_place import AzurePlace, azure_section
from tests.support.cloud_site import CloudSite, assert_unharmed
from tests.support.command_line import CommandLine
from tests.support.gce_place import GcePlace, gce_section
from tests.support.ibmvpc_place import IbmVpcPlace, ibmvpc_section
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
    image = {"name": "debian", "image-name": "cloud-image", "username": "debian", "connection-port": site.sshd.port}
    section = {
        "name": "cloud-a",
        "driver": "openstack",
        "cloud": "simulator",
        "rate": 0,
        "diskimages": [{"name": "built", "connection-port": site.sshd.port}],
        "cloud-images": [image],
        "pools": [
            {
                "name": "main",
                "networks": ["provider"],
                "labels": [{"name": "small", "cloud-image": "debian", "min-ram": 512}],
            }
        ],
    }
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
def region(monkeypatch: pytest.MonkeyPatch) -> Iterator[AwsSimulator]:
    """A simulated AWS region; in the end no node may ever have had two instances."""
    with AwsSimulator() as cloud:
        for name, value in cloud.environment.items():
            monkeypatch.setenv(name, value)
        yield cloud
        assert_unharmed(cloud)


@pytest.fixture
def aws(region: AwsSimulator, site: CloudSite) -> Iterator[AwsPlace]:
    """Change ``section`` and call `AwsPlace.launch`."""
    with region.cloud() as cloud:
        made = AwsPlace(region, site.znodes, aws_section(cloud.image_id, site.sshd.port))

    with site.running(made):
        yield made


@pytest.fixture
def azure(site: CloudSite) -> Iterator[AzurePlace]:
    """Change ``section`` and call `AzurePlace.launch`; in the end no node may ever have had two VMs."""
    with AzureSimulator() as cloud:
        auth_file = cloud.write_auth_file(site.directory / "azure.json")
        with site.running(AzurePlace(cloud, site.znodes, azure_section(auth_file, site.sshd.port))) as made:
            yield made


@pytest.fixture
def gce(site: CloudSite) -> Iterator[GcePlace]:
    """Change ``section`` and call `GcePlace.launch`; in the end no node may ever have had two instances."""
    with GceSimulator() as cloud:
        section = gce_section(cloud.write_key_file(site.directory / "key.json"), cloud.url, site.sshd.port)
        with site.running(GcePlace(cloud, site.znodes, section)) as made:
            yield made


@pytest.fixture
def ibm(site: CloudSite) -> Iterator[IbmVpcPlace]:
    """Change ``section`` and call `IbmVpcPlace.launch`; in the end no node may ever have had two instances."""
    with IbmVpcSimulator() as cloud:
        section = ibmvpc_section(cloud.write_credentials(site.directory / "ibm.env"), site.sshd.port)
        with site.running(IbmVpcPlace(cloud, site.znodes, section)) as made:
            yield made


@pytest.fixture
def nodepool(tmp_path: Path, zookeeper: ZooKeeperServer, chroot: str) -> CommandLine:
    """The command line, for a static provider ``lab``."""
    write_config(tmp_path / "nodepool.yaml", zookeeper, chroot, [StaticProvider([StaticHost("127.1.0.1")], name="lab")])
    return CommandLine(tmp_path / "nodepool.yaml")


@pytest.fixture
def add_node(znodes: PoolZnodes) -> Callable[..., str]:
    """Puts a node of ``lab`` into ZooKeeper and returns its id."""

    def add(**fields: Any) -> str:
        node = {
            "state": "ready",
            "state_time": time.time() - 3600,
            "type": ["small", "big"],
            "provider": "lab",
            "external_id": "host-1",
            "public_ipv4": "127.1.0.1",
            "connection_port": 22,
            "username": "zuul",
        }
        return znodes.add_node(**{**node, **fields})

    return add
