# SPDX-License-Identifier: Apache-2.0
"""etc/compose.yaml: the certificates that the page tells to make, and its ZooKeeper with them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.functional.containers.buildah import ROOT
from tests.support.command_line import CommandLine
from tests.support.ports import free_ports
from tests.support.process import ChildProcess
from tests.support.wait import wait_for
from tests.support.zookeeper import find_jars

PAGE = ROOT / "doc" / "source" / "how-to" / "containers.rst"


def commands(directory: Path) -> str:
    """What the page tells to type, below a directory."""
    part = PAGE.read_text(encoding="utf-8").partition("All of it on one machine")[2].partition("\n3. ")[0]
    lines = [line.strip().removeprefix("$ ") for line in part.splitlines() if line.startswith("      ")]
    text = "\n".join(["set -e", *lines, ""])
    return re.sub(r"(/root/zk-tls|/etc/)", lambda found: f"{directory}{found[1]}", text)


def test_certificates(tmp_path: Path) -> None:
    """ZooKeeper takes them as the compose file configures it, and so does a client."""
    (tmp_path / "root").mkdir()
    done = subprocess.run(
        ["bash", "-c", commands(tmp_path)], capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    key = tmp_path / "etc" / "nodepool" / "zk-client.key"
    assert (key.stat().st_mode & 0o777, key.stat().st_gid) == (0o640, 10001)
    (port,) = free_ports(1)
    settings = yaml.safe_load((ROOT / "etc" / "compose.yaml").read_text(encoding="utf-8"))
    config: str = settings["configs"]["zoo.cfg"]["content"]
    for there, here in (("=/data", "=%s/data"), ("=/tls", "=%s/etc/zookeeper/tls")):
        config = config.replace(there, here % tmp_path)
    (tmp_path / "zoo.cfg").write_text(config.replace("Port=2281", f"Port={port}"), encoding="utf-8")
    main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
    server = ChildProcess(["java", "-cp", find_jars(), main, str(tmp_path / "zoo.cfg")], tmp_path / "zookeeper.log")
    server.start()
    tls = {name: str(key.with_name(f"zk-{file}")) for name, file in FILES.items()}
    nodepool = CommandLine(tmp_path / "nodepool.yaml")
    data = {"zookeeper-servers": [{"host": "127.0.0.1", "port": port}], "zookeeper-tls": tls}
    nodepool.config.write_text(yaml.safe_dump(data), encoding="utf-8")
    try:
        wait_for("ZooKeeper takes our certificate", lambda: nodepool("list").status == 0, 120.0)
    finally:
        server.stop(seconds=60)


FILES = {"cert": "client.pem", "key": "client.key", "ca": "ca.pem"}
pytestmark = pytest.mark.timeout(600)
