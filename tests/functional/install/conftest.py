# SPDX-License-Identifier: Apache-2.0
"""Fresh Debians with the package of ``tools/release``, their configuration of Nodepool, and their systemd."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.support.booted_debian import BootedDebian
from tests.support.debian_tree import DebianTree, debootstrap, pip_files
from tests.support.launcher_config import zookeeper_sections
from tests.support.zookeeper import ZooKeeperServer

ROOT: Final = Path(__file__).parents[3]
#: Installs the package, which is in the home of root.
INSTALL: Final = (
    *("env", "DEBIAN_FRONTEND=noninteractive", "sh", "-ec"),
    "apt-get install --yes --no-install-recommends /root/nodepool_*.deb",
)
#: Where the source is in it.
SOURCE: Final = "/root/nodepool"


@pytest.fixture(scope="session")
def package() -> Path:
    """Of the commit. Blocks for some minutes."""
    done = subprocess.run([ROOT / "tools" / "release", "--no-images"], capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, f"{done.stdout[-2000:]}{done.stderr[-2000:]}"
    (found,) = (ROOT / "dist").glob("*.deb")
    return found


@pytest.fixture
def make_debian(package: Path) -> Iterator[Callable[..., DebianTree]]:
    """Makes a fresh one with some packages, the package of Nodepool, and the source, which cannot be written."""
    # Not below /tmp, which may be in memory.
    directory = Path(tempfile.mkdtemp(prefix="nodepool-install-", dir="/var/tmp"))

    def make(*packages: str, user_namespaces: bool = False, release: str = "bookworm") -> DebianTree:
        debootstrap(directory / "debian", ["systemd", "ca-certificates", "python3", *packages], release)
        # What has no part in it may be large.
        left_out = shutil.ignore_patterns(".*", "__pycache__", "build", "dist", "*.egg-info")
        shutil.copytree(ROOT, directory / "source", ignore=left_out, symlinks=True)
        mounts = {directory / "source": SOURCE, package: f"/root/{package.name}", **pip_files(directory)}
        return DebianTree(directory / "debian", mounts, user_namespaces=user_namespaces)

    try:
        yield make
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def configure(tree: DebianTree, zookeeper: ZooKeeperServer, chroot: str, sections: dict[str, Any]) -> None:
    """Write the configuration where Nodepool is installed, with keys for a ZooKeeper of this machine."""
    certificates = zookeeper.certificates.copied(tree.path("/etc/nodepool"), "/etc/nodepool")
    config = {**zookeeper_sections(zookeeper, chroot, 10.0, certificates=certificates), **sections}
    tree.path("/etc/nodepool/nodepool.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    tree.output("sh", "-c", "chown -R nodepool: /etc/nodepool/*")


@contextmanager
def booted_tree(tree: DebianTree) -> Iterator[BootedDebian]:
    """It runs meanwhile."""
    directory = Path(tempfile.mkdtemp(prefix="nodepool-boot-"))
    machine = BootedDebian(tree, directory)
    machine.start()
    try:
        yield machine
    finally:
        machine.stop()
        shutil.rmtree(directory)
