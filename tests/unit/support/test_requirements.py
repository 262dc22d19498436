# SPDX-License-Identifier: Apache-2.0
"""What a machine lacks makes the tests fail, with a text that says what to install; they are never skipped."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support import certificates, sshd, zookeeper
from tests.support.requirements import MissingRequirement


@pytest.fixture
def bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No program and no jar is installed. Returns an empty directory."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(zookeeper, "JAR_DIRECTORY", str(tmp_path))
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    return tmp_path


def test_java(bare_machine: Path) -> None:
    with pytest.raises(
        MissingRequirement, match=r"need Java\. On Debian: apt-get install zookeeper default-jre-headless"
    ):
        zookeeper.find_jars()


def test_jars(bare_machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    with pytest.raises(MissingRequirement, match=r"ZooKeeper's jars in .*: apt-get install zookeeper"):
        zookeeper.find_jars()


def test_sshd(bare_machine: Path) -> None:
    with pytest.raises(MissingRequirement, match=r"an OpenSSH server.*: apt-get install openssh-server"):
        sshd.SshServer(bare_machine / "sshd").start()


def test_openssl(bare_machine: Path) -> None:
    with pytest.raises(MissingRequirement, match=r"the openssl program.*: apt-get install openssl"):
        certificates.make_certificates(bare_machine / "ca")
