# SPDX-License-Identifier: Apache-2.0
"""The images of the Dockerfile, built once for all tests."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.functional.containers.buildah import ROOT, Buildah, stages
from tests.support.debian_tree import debootstrap, pip_files
from tests.support.launcher_config import StaticProvider, static_hosts, write_config
from tests.support.ports import free_ports
from tests.support.zookeeper import ZooKeeperServer

#: User and group of all images.
USER: Final = 10001
IMAGES: Final = ("nodepool", "nodepool-launcher", "nodepool-web", "nodepool-builder")


@pytest.fixture(scope="session")
def images() -> Iterator[Buildah]:
    """Each image under the name of its target. Takes minutes."""
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
    """Build all images on a Debian."""
    dockerfile = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    version = re.findall(r"^ARG PYTHON_VERSION=(\S+)$", dockerfile, re.MULTILINE)[0]
    buildah.base_image(base, f"docker.io/library/python:{version}-slim-bookworm")
    found = stages(dockerfile)
    assert set(found) == {"build", "base", *IMAGES}
    both = found["build"] + found["base"].partition("\n\n")[2]
    volumes = [f"{file}:{place}:ro" for file, place in pip_files(buildah.directory).items()]
    buildah.build(both, "base", volumes)
    for name in IMAGES:
        # Each alone, because buildah makes every stage above a target again.
        buildah.build(found[name].replace("FROM base ", "FROM localhost/base "), name)


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
