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
from tests.functional.containers.site import Site
from tests.support.debian_tree import debootstrap, pip_files
from tests.support.zookeeper import ZooKeeperServer

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
def site(tmp_path: Path, zookeeper: ZooKeeperServer, chroot: str) -> Site:
    """A configuration for containers."""
    return Site(tmp_path, zookeeper, chroot)
