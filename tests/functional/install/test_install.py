# SPDX-License-Identifier: Apache-2.0
"""The Debian package in a fresh Debian, from installation to purge (how-to/install, tutorial/zookeeper)."""

from __future__ import annotations

import os
import re
import subprocess
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
import yaml

from tests.functional.install import debian_zookeeper
from tests.functional.install.conftest import INSTALL, ROOT
from tests.support.debian_tree import DebianTree
from tests.support.launcher_config import StaticProvider, static_hosts
from tests.support.ports import free_ports
from tests.support.wait import wait_for

#: A Debian and many packages.
pytestmark = pytest.mark.timeout(3000)

CONFIGURATION: Final = "/etc/nodepool/nodepool.yaml"
UNITS: Final = "/usr/lib/systemd/system"
#: As systemd starts it: no process in between that would keep signals.
AS_NODEPOOL: Final = (
    *("setpriv", "--reuid=nodepool", "--regid=nodepool", "--init-groups"),
    *("env", "HOME=/var/lib/nodepool"),
)
#: A daemon on a busy machine; seconds.
PATIENCE: Final = 120.0


def serves(debian: DebianTree) -> bool:
    """Is the node of the only host there and ready?"""
    listed = debian("nodepool", "list")
    return listed.status == 0 and any("127.1.0.1" in row and "ready" in row for row in listed.rows)


def test_release(package: Path, tmp_path: Path) -> None:
    """A second run makes the same bytes. It is signed with the key that is given."""
    first = (package.parent / "SHA256SUMS").read_bytes()
    environment = {**os.environ, "GNUPGHOME": str(tmp_path)}
    tmp_path.chmod(0o700)
    try:
        for command in (
            "gpg --batch --quiet --passphrase= --quick-generate-key release@example.com",
            f"{ROOT}/tools/release --no-images --key release@example.com",
            "gpg --batch --verify SHA256SUMS.asc SHA256SUMS",
            "sha256sum --check --quiet SHA256SUMS",
        ):
            done = subprocess.run(command.split(), cwd=package.parent, env=environment, capture_output=True, text=True)
            assert done.returncode == 0, f"{command}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
    finally:
        subprocess.run(["gpgconf", "--kill", "all"], env=environment, check=True)
    assert (package.parent / "SHA256SUMS").read_bytes() == first


@pytest.mark.parametrize("release", ["bookworm", "trixie"])
def test_package(make_debian: Callable[..., DebianTree], release: str, tmp_path: Path) -> None:
    debian = make_debian(release=release)
    debian.path("/opt/nodepool").mkdir()
    refused = debian(*INSTALL)
    assert refused.status != 0
    assert "/opt/nodepool is there and belongs to no package." in refused.err + refused.out
    debian.path("/opt/nodepool").rmdir()
    debian.output(*INSTALL)
    assert debian.output("nodepool", "--version") == "Nodepool version: 12.0.0\n"
    debian.output("/opt/nodepool/bin/python", "-c", "import authlib, botocore, kubernetes, opentelemetry.sdk")
    owners = ("/etc/nodepool", CONFIGURATION, "/var/lib/nodepool", "/var/log/nodepool", "/opt/nodepool")
    assert debian.output("stat", "-c", "%U:%G %a", *owners).splitlines() == [
        *("root:nodepool 750", "root:nodepool 640", "nodepool:nodepool 755", "nodepool:nodepool 755", "root:root 755"),
    ]
    verified = debian("sh", "-ec", f"systemd-analyze verify {UNITS}/nodepool-*.service")
    assert (verified.status, verified.out, verified.err) == (0, "", "")
    for place in ("man/man1/nodepool.1.gz", "bash-completion/completions/nodepool"):
        assert debian.path(f"/usr/share/{place}").is_file()
    certificates = (
        "nodepool-tls -d /root/zk-tls init; nodepool-tls -d /root/zk-tls server zk1.example.com localhost 127.0.0.1"
    )
    debian.output("sh", "-ec", f"{certificates}; nodepool-tls -d /root/zk-tls client nodepool")
    if release == "bookworm":
        # The page about ZooKeeper is about Debian 12.
        with_zookeeper(debian, tmp_path)
    debian.output("apt-get", "remove", "--yes", "nodepool")
    assert debian("sh", "-c", "command -v nodepool").status != 0
    assert not debian.path("/opt/nodepool").exists()
    assert debian.path(CONFIGURATION).is_file()
    debian.path("/etc/nodepool/own.key").touch()
    debian.output("dpkg", "--purge", "nodepool")
    assert [debian.path(place).exists() for place in (CONFIGURATION, "/var/log/nodepool", "/etc/nodepool/own.key")] == [
        *(False, False, True),
    ]
    debian.output("id", "nodepool")


def with_zookeeper(debian: DebianTree, tmp_path: Path) -> None:
    """A launcher as the unit starts it, with Debian's ZooKeeper; and an update keeps the file that was edited."""
    page = debian_zookeeper.PAGE.read_text(encoding="utf-8")
    *put, _look = re.findall(r"^   \$ (.+)$", page.partition("5. Look")[2], re.MULTILINE)
    for command in put:
        if command.startswith("install "):
            debian.output("sh", "-ec", command)
    (block,) = re.findall(r"\.\. code-block:: yaml\n\n((?:   .*\n|\n)+)", page)
    zookeeper_port, web_port = free_ports(2)
    try:
        debian_zookeeper.start(debian, zookeeper_port)
        data = yaml.safe_load(textwrap.dedent(block))
        data |= {
            "zookeeper-servers": [{"host": "127.0.0.1", "port": zookeeper_port}],
            "webapp": {"listen_address": "127.0.0.1", "port": web_port},
            "labels": [{"name": "small"}],
            "providers": [StaticProvider(static_hosts(1)).as_config()],
        }
        text = yaml.safe_dump(data)
        debian.path(CONFIGURATION).write_text(text, encoding="utf-8")
        debian.output("nodepool", "config-validate")
        (command,) = re.findall(
            r"^ExecStart=(.*)$", debian.path(f"{UNITS}/nodepool-launcher.service").read_text("ascii"), re.MULTILINE
        )
        launcher = debian.daemon([*AS_NODEPOOL, *command.split()], tmp_path / "launcher.log")
        try:
            wait_for("the launcher serves", lambda: serves(debian), PATIENCE)
        finally:
            launcher.stop(seconds=PATIENCE)
        assert launcher.returncode == 0, launcher.log_text()
        assert "Traceback" not in launcher.log_text()
        debian.output(*INSTALL[:-1], f"{INSTALL[-1]} --reinstall")
        assert debian.path(CONFIGURATION).read_text(encoding="utf-8") == text
    finally:
        debian_zookeeper.stop(debian)
