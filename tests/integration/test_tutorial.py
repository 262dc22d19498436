# SPDX-License-Identifier: Apache-2.0
"""The tutorial's pages about hosts and a simulated cloud: what they say to write works as they say."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from simulators.openstack import OpenStackSimulator
from tests.support.command_line import CommandLine
from tests.support.launcher import BuilderProcess
from tests.support.local_launcher import LocalLauncher
from tests.support.pool_znodes import PoolZnodes
from tests.support.sshd import SshServer
from tests.support.wait import wait_for
from tests.support.zookeeper import ZooKeeperServer

PAGES = Path(__file__).parents[2] / "doc" / "source" / "tutorial"


def sections(page: str, sshd: SshServer) -> dict[str, Any]:
    """The configuration of a page, for the hosts of this test."""
    (block,) = re.findall(r"^\.\. code-block:: yaml\n\n((?: +.*\n|\n)+)", (PAGES / page).read_text(), re.MULTILINE)
    settings: dict[str, Any] = yaml.safe_load(textwrap.dedent(block))
    for provider in settings["providers"]:
        for number, host in enumerate(provider["pools"][0].get("nodes", ()), 1):
            assert host["name"] == f"node{number}.example.com"
            host.update({"name": f"127.0.0.{10 + number}", "connection-port": sshd.port})
    return settings


def requests() -> Iterator[tuple[list[str], int]]:
    """The requests of a page, with the exit status: the last one is for a label that there is not."""
    commands = re.findall(r"^   \$ nodepool (request .*)$", (PAGES / "request.rst").read_text(), re.MULTILINE)
    assert len(commands) == 4
    return ((command.split(), int(command == commands[-1])) for command in commands)


@pytest.mark.timeout(240)
def test_hosts_and_cloud(
    tmp_path: Path,
    zookeeper: ZooKeeperServer,
    chroot: str,
    znodes: PoolZnodes,
    sshd: SshServer,
    simulator: OpenStackSimulator,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A user writes the first page, adds a cloud, sees it fail and come back, and adds an image."""
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(simulator.write_clouds_yaml(tmp_path / "clouds.yaml")))
    hosts = {key: sections("hosts.rst", sshd)[key] for key in ("labels", "providers")}
    launcher = LocalLauncher(tmp_path / "nodepool.yaml", zookeeper, chroot, hosts)
    # Small files in place of images.
    builder = BuilderProcess(launcher.path, tmp_path / "builder.log", options=["--fake"])
    command = CommandLine(launcher.path)

    def ready(provider: str) -> list[str]:
        return sorted(key for key, node in znodes.nodes("ready").items() if node["provider"] == provider)

    launcher.start()
    try:
        wait_for("three nodes are ready", lambda: len(ready("lab")) == 3, seconds=60)
        for arguments in (["check"], ["status"]):
            assert command(*arguments).status == 0, arguments

        assert command("explain", "127.0.0.11").out.startswith("Host 127.0.0.11 is up; node ")
        for arguments, status in requests():
            told = command(*arguments, answer="\n")
            assert told.status == status, told
            wanted = 0 if "json" in arguments else arguments.count("debian-small")
            assert told.out.count("  ssh -p ") == wanted, told
            wait_for("three nodes are ready", lambda: len(ready("lab")) == 3, seconds=60)

        cloud = sections("cloud.rst", sshd)
        launcher.write({key: hosts[key] + cloud[key] for key in hosts})
        wait_for("two servers are ready", lambda: len(ready("cloud-1")) == 2, seconds=60)

        first, second = ready("cloud-1")
        assert command("delete", first, "--wait").status == 0
        wait_for("another one is launched", lambda: len(ready("cloud-1")) == 2, seconds=60)

        simulator.change(errors=[{"operation": "*", "kind": "503"}])
        assert command("delete", second).status == 0
        # In the column of the state: the cloud's error has the word, too.
        wait_for("the provider is away", lambda: "| unavailable " in command("providers", "cloud-1").out, seconds=60)
        simulator.change(errors=[])
        wait_for("the node is deleted", lambda: znodes.node(second) is None, seconds=90)
        wait_for("another one is launched", lambda: len(ready("cloud-1")) == 2, seconds=90)

        image = sections("image.rst", sshd)
        image["images-dir"] = str(tmp_path / "images")
        image["build-log-dir"] = str(tmp_path / "logs")
        launcher.write({**image, **{key: hosts[key] + cloud[key] + image[key] for key in hosts}})
        wait_for("the label waits for the image", lambda: "debian-own" in command("explain", "own").out, seconds=60)
        builder.start()
        wait_for("a node boots from the image", lambda: ready("cloud-2"), seconds=90)
        assert command("image-build", "debian-own").status == 0
        wait_for("a second upload", lambda: command("image-list").out.count("| ready") == 2, seconds=60)
        assert command("image-rollback", "cloud-2", "debian-own").status == 0
        told = command("explain", "debian-own")
        assert "which is ready for" in told.out
        assert "  cloud-2  " in told.out
    finally:
        simulator.change(errors=[])
        builder.stop()
        launcher.stop()
