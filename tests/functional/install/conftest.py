# SPDX-License-Identifier: Apache-2.0
"""A fresh Debian 12 with the source in it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.support.debian_tree import DebianTree, debootstrap, pip_files

ROOT: Final = Path(__file__).parents[3]
#: Where the source is in it.
SOURCE: Final = "/root/nodepool"


@pytest.fixture
def make_debian() -> Iterator[Callable[..., DebianTree]]:
    """Makes a fresh one with some packages, without Python, and a copy of the source in it, which cannot be written."""
    # Not below /tmp, which may be in memory.
    directory = Path(tempfile.mkdtemp(prefix="nodepool-install-", dir="/var/tmp"))

    def make(*packages: str, user_namespaces: bool = False) -> DebianTree:
        debootstrap(directory / "debian", ["systemd", "ca-certificates", *packages])
        # What has no part in it may be large.
        left_out = shutil.ignore_patterns(".*", "__pycache__", "build", "*.egg-info")
        shutil.copytree(ROOT, directory / "source", ignore=left_out, symlinks=True)
        mounts = {directory / "source": SOURCE, **pip_files(directory)}
        return DebianTree(directory / "debian", mounts, user_namespaces=user_namespaces)

    try:
        yield make
    finally:
        shutil.rmtree(directory, ignore_errors=True)
