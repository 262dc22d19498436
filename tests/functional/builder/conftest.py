# SPDX-License-Identifier: Apache-2.0
"""Fixtures for tests with the real diskimage-builder; those of a real cloud are tests/functional/openstack's."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.functional.builder.site import BuilderSite
from tests.functional.openstack.conftest import cloud, clouds, place, provider
from tests.support.zookeeper import ZooKeeperServer
from tests.support.zuul_fixtures import zuul, zuul_log

__all__ = ["cloud", "clouds", "place", "provider", "zuul", "zuul_log"]


@pytest.fixture
def site(zookeeper: ZooKeeperServer, chroot: str) -> Iterator[BuilderSite]:
    """A builder's corner, where files are on a disk and other users can reach them."""
    directory = Path(tempfile.mkdtemp(prefix="nodepool-builder-", dir="/var/tmp"))
    directory.chmod(0o755)
    made = BuilderSite(directory, zookeeper, chroot)
    made.records.start()
    yield made
    made.stop()
    made.records.stop()
    # What is still mounted there must not be deleted.
    assert not made.remains().mounts
    shutil.rmtree(directory)
