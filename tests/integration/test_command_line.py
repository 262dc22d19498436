# SPDX-License-Identifier: Apache-2.0
"""Commands and what they answer, against a real ZooKeeper with TLS (reference/commands 2): cases of ``tables.yaml``."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodepool.driver.registry import PATH_VARIABLE
from simulators.openstack import OpenStackSimulator
from tests.scenario.test_example import copy_of_the_example
from tests.support.command_line import CommandLine
from tests.support.command_steps import CommandSteps
from tests.support.image_znodes import ImageZnodes
from tests.support.launcher_config import StaticProvider, static_hosts, write_config
from tests.support.pool_znodes import PoolZnodes
from tests.support.ports import free_ports
from tests.support.serving_process import ServingProcess
from tests.support.tables import table
from tests.support.wait import wait_for
from tests.support.zookeeper import ZooKeeperServer

COMMANDS: dict[str, Any] = table(__file__, "commands")
WITH_CLOUDS: dict[str, Any] = table(__file__, "commands_with_clouds")


@pytest.mark.parametrize("case", COMMANDS)
def test_commands(nodepool: CommandLine, znodes: PoolZnodes, case: str) -> None:
    """For a static provider ``lab``."""
    CommandSteps(nodepool, znodes).run(COMMANDS[case])


@pytest.mark.parametrize("case", WITH_CLOUDS)
def test_commands_with_clouds(clouds: CommandLine, znodes: PoolZnodes, case: str) -> None:
    """For the clouds of `clouds`, too; the uploads of one of them are paused."""
    CommandSteps(clouds, znodes).run(WITH_CLOUDS[case])


# -- those that ask clouds: ``alien-image-list`` (D-3) and ``installation delete`` (D-10)


#: Ids of builds, and of installations.
A, B = (letter * 32 for letter in "ab")
OURS, LOST, OTHER = "0123456789abcdef", "fedcba9876543210", "1111222233334444"


def test_aliens(clouds: CommandLine, znodes: PoolZnodes, simulator: OpenStackSimulator) -> None:
    """Images of builders that have no record; each is listed for the provider that it was made for.

    A cloud that is away does not hide the others.
    """

    def in_cloud(build: str, number: int, provider: str) -> str:
        metadata = {"nodepool_build_id": build, "nodepool_upload_id": f"{number:010}"}
        with simulator.cloud() as cloud:
            image = cloud.images.add_active(f"debian-{number}")
            image.update({**metadata, "nodepool_provider_name": provider})
            return str(image["id"])

    images = ImageZnodes(znodes)
    images.add_build("debian", A)
    images.add_upload("debian", A, "cloud-a", 1, external_id=in_cloud(A, 1, "cloud-a"))
    images.add_upload("debian", A, "cloud-a", 2, state="uploading", external_id=None)
    in_cloud(A, 2, "cloud-a")
    lost, others = in_cloud(B, 1, "cloud-a"), in_cloud(A, 1, "cloud-b")
    result = clouds("alien-image-list", "cloud-a")
    assert (result.status, result.err) == (0, "")
    headers = [cell.strip() for cell in result.out.splitlines()[1].strip("|").split("|")]
    assert headers == ["Provider", "Name", "Image ID"]
    assert result.rows == [["cloud-a", "debian-1", lost]]
    assert json.loads(clouds("alien-image-list", "cloud-b", "--format", "json").out) == [
        {"provider": "cloud-b", "name": "debian-1", "image_id": others}
    ]
    result = clouds("alien-image-list")
    assert (result.status, result.rows) == (1, [["cloud-a", "debian-1", lost], ["cloud-b", "debian-1", others]])
    assert "cloud-c" in result.err
    assert "Traceback" not in result.err


@pytest.fixture
def installations(simulator: OpenStackSimulator, znodes: PoolZnodes) -> None:
    """Things of three installations, an earlier release, and others. ``former`` is a provider of before."""
    record = {"id": OURS, "adopted": []}
    znodes.kazoo.create("/nodepool/installation", json.dumps(record).encode(), makepath=True)

    def mark(installation: str | None) -> dict[str, str]:
        return {"nodepool_installation_id": installation} if installation else {}

    with simulator.cloud() as cloud:
        for name, provider, installation in (
            *(("lost", "cloud-a", LOST), ("renamed", "former", LOST), ("ours", "cloud-a", OURS)),
            *(("neighbour", "cloud-a", OTHER), ("old", "cloud-a", None)),
        ):
            metadata = {"nodepool_provider_name": provider, "nodepool_pool_name": "main", "nodepool_node_id": name}
            cloud.add_server(name, {**metadata, **mark(installation)})
        cloud.add_server("stray")
        for name, installation in (("lost", LOST), ("ours", OURS), ("old", None)):
            image = {"nodepool_provider_name": "cloud-b", "nodepool_build_id": "b1", "nodepool_upload_id": name}
            cloud.add_image(f"{name}-image", {**image, **mark(installation)})


@pytest.mark.usefixtures("installations")
def test_deletion_of_another_installation(clouds: CommandLine, simulator: OpenStackSimulator) -> None:
    """After a question. Each thing once, although two providers show it. A cloud that is away keeps no other."""

    def there() -> set[str]:
        """Names of servers, and of images that can be private."""
        with simulator.cloud() as cloud:
            servers = {server.name for server in cloud.compute.servers if not server.gone}
            return servers | {image["name"] for image in cloud.images.images if image["name"].endswith("-image")}

    before = there()
    result = clouds("installation", "delete", "0" * 16, "--force")
    assert (result.status, result.out) == (1, "")
    text = f"nothing in the clouds of the configuration has the id {'0' * 16} (other ids there: {OTHER}, {LOST})"
    assert result.err.splitlines()[-1] == text
    refused = clouds("installation", "delete", LOST)
    assert refused.out.startswith(f"These have the id {LOST}:\n")
    listed = [line for line in refused.out.splitlines() if line.startswith("  ")]
    assert sorted(line.split()[0] for line in listed) == ["image", "instance", "instance"]
    assert refused.out.endswith("Delete 3 thing(s) in the clouds? [N/y] \nAborting. Nothing deleted.\n")
    assert there() == before
    result = clouds("installation", "delete", LOST, answer="y\n")
    assert result.status == 1
    assert "cloud-c" in result.err
    assert "Traceback" not in result.err
    assert result.out.count("Deleting ") == 3
    wait_for("all is deleted", lambda: before - there() == {"lost", "renamed", "lost-image"})


# -- ``nodepool health`` with real daemons


Start = Callable[[str, dict[str, Any]], ServingProcess]


@pytest.fixture
def start(tmp_path: Path, zookeeper: ZooKeeperServer, chroot: str, nodepool: CommandLine) -> Iterator[Start]:
    """Starts the daemon of a module with these settings of ``webapp``; the commands have the same configuration."""
    processes: list[ServingProcess] = []

    def start(module: str, webapp: dict[str, Any]) -> ServingProcess:
        write_config(nodepool.config, zookeeper, chroot, [StaticProvider(static_hosts(1))], extra={"webapp": webapp})
        processes.append(ServingProcess(module, nodepool.config))
        processes[-1].start()
        return processes[-1]

    yield start
    for process in processes:
        process.stop()


@pytest.mark.parametrize("kind", ["launcher", "web"])
def test_by_http(start: Start, nodepool: CommandLine, kind: str) -> None:
    (port,) = free_ports(1)
    address = f"http://127.0.0.1:{port}/health"
    process = start(f"nodepool.cmd.{kind}", {"listen_address": "127.0.0.1", "port": port})
    process.wait_ready()
    told = nodepool("health", f"--{kind}")
    assert (told.status, told.out) == (0, f"{kind}: {address}/ready: OK\n")
    process.stop()
    told = nodepool("health", f"--{kind}", "--live")
    assert told.status == 1
    assert told.out.startswith(f"{kind}: ")


def test_without_pages(start: Start, nodepool: CommandLine) -> None:
    """Any free port: the configuration does not tell which, and ZooKeeper does that there is a launcher."""
    process = start("nodepool.cmd.launcher", {"listen_address": "127.0.0.1", "port": 0})
    process.wait_ready()
    told = nodepool("health")
    assert (told.status, told.err) == (0, "")
    assert told.out == f"launcher: registered in ZooKeeper for {socket.gethostname()}\n"


# -- a driver that is not part of the package, as its author installs it: a directory and an environment variable


def test_copied_driver(tmp_path: Path, nodepool: CommandLine) -> None:
    """reference/driver 0: config-validate knows it. In launchers: `tests.scenario.test_example`."""
    copy_of_the_example(tmp_path / "drivers", "mycloud")
    label = {"name": "small", "cloud-image": "debian", "size": "small"}
    provider = {
        "name": "mine",
        "driver": "mycloud",
        "url": "http://127.0.0.1:1",
        "cloud-images": [{"name": "debian", "username": "debian"}],
        "pools": [{"name": "main", "labels": [label]}],
    }
    settings: dict[str, Any] = yaml.safe_load(nodepool.config.read_text(encoding="utf-8"))
    nodepool.config.write_text(yaml.safe_dump({**settings, "providers": [provider]}), encoding="utf-8")
    assert nodepool("config-validate").status == 1
    nodepool.environment[PATH_VARIABLE] = str(tmp_path / "drivers")
    result = nodepool("config-validate")
    assert result.status == 0, result.err
