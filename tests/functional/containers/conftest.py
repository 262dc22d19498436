# SPDX-License-Identifier: Apache-2.0
"""The images of ``tools/release``, built once for all tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.functional.containers.buildah import ROOT, Buildah
from tests.support.debian_tree import debootstrap, pip_files
from tests.support.launcher_config import StaticProvider, static_hosts, write_config
from tests.support.ports import free_ports
from tests.support.zookeeper import ZooKeeperServer

#: User and group of all images.
USER: Final = 10001
#: Where the compose file and the manifests of the release have them.
REGISTRY: Final = "registry.example.org/ci"
IMAGES: Final = ("nodepool", "nodepool-launcher", "nodepool-web", "nodepool-builder")


@pytest.fixture(scope="session")
def images() -> Iterator[Buildah]:
    """Each image under the name of its target; the files of the release in ``dist``. Takes minutes."""
    kept = os.environ.get("NODEPOOL_TEST_IMAGES")
    # Not below /tmp, which may be in memory.
    directory = Path(kept) if kept else Path(tempfile.mkdtemp(prefix="nodepool-containers-", dir="/var/tmp"))
    try:
        buildah = Buildah(directory)
        base = directory / "debian"
        if not base.exists():
            debootstrap(base, ["python3", "python3-venv", "ca-certificates"])
        if not (directory / "built").exists():
            build(buildah, base)
            (directory / "built").touch()
        yield buildah
    finally:
        if not kept:
            shutil.rmtree(directory, ignore_errors=True)


def build(buildah: Buildah, base: Path) -> None:
    """Build all images on a Debian, and take them."""
    command = [str(ROOT / "tools" / "release"), "--only-images", "--base", str(base), "--registry", REGISTRY]
    for file, place in pip_files(buildah.directory).items():
        command += ["--volume", f"{file}:{place}"]
    with (buildah.directory / "release.log").open("w+", encoding="utf-8") as log:
        done = subprocess.run(command, env=buildah.environment, stdout=log, stderr=log, timeout=3000, check=False)
        log.seek(0)
        assert done.returncode == 0, log.read()[-4000:]
    shutil.move(ROOT / "dist", buildah.directory / "dist")
    for name in IMAGES:
        buildah.take(buildah.directory / "dist" / f"{name}.oci.tar", name)


@pytest.fixture
def volumes(tmp_path: Path, zookeeper: ZooKeeperServer, chroot: str) -> dict[Path, str]:
    """``/etc/nodepool`` of a container: a static host, web pages, and keys that only its user reads."""
    etc = tmp_path / "etc"
    etc.mkdir()
    inside = zookeeper.certificates.copied(etc, "/etc/nodepool")
    for file in etc.iterdir():
        file.chmod(0o640)
        os.chown(file, 0, USER)
    webapp = {"listen_address": "127.0.0.1", "port": free_ports(1)[0]}
    extra = {"webapp": webapp, "images-dir": "/opt/nodepool/images"}
    hosts = [StaticProvider(static_hosts(1))]
    write_config(etc / "nodepool.yaml", zookeeper, chroot, hosts, certificates=inside, extra=extra)
    # The user of the container has to get there.
    for path in (*reversed(etc.parents), etc):
        if path.stat().st_uid == os.geteuid() and path != Path("/"):
            path.chmod(path.stat().st_mode | 0o011)
    return {etc: "/etc/nodepool"}
