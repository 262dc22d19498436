# SPDX-License-Identifier: Apache-2.0
"""Fixtures for tests of builds, uploads and clean-up, with a ZooKeeper and clouds in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nodepool.builder import image_cleanup
from nodepool.builder.dib import NOTES
from nodepool.plan.retries import Backoff
from nodepool.zk.client import ZooKeeperClient
from tests.support.build_site import BuildSite
from tests.support.image_site import ImageSite, MakeSite
from tests.support.pool_znodes import PoolZnodes
from tests.support.zookeeper import ZooKeeperServer


@pytest.fixture(autouse=True)
def _no_second_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """R-4: records of abandoned uploads go at once, but for the tests of that."""
    monkeypatch.setattr("nodepool.plan.images.ABANDONED_SECONDS", 0.0)


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """R-7: a deletion that failed is tried again soon, but for the tests of that."""
    monkeypatch.setattr(image_cleanup, "BACKOFF", Backoff(0.01, 0.1))


@pytest.fixture
def make_site(zookeeper: ZooKeeperServer, chroot: str, tmp_path: Path, znodes: PoolZnodes) -> Iterator[MakeSite]:
    """Makes builders, each with a connection and a disk of its own: ``make_site(["a", "b"], clouds=other.clouds)``."""
    sites: list[ImageSite] = []

    def make(*arguments: Any, **options: Any) -> ImageSite:
        client = ZooKeeperClient(zookeeper.tls_hosts(chroot), **zookeeper.certificates.options())
        client.connect(timeout=30)
        directory = tmp_path / f"images-{len(sites)}"
        directory.mkdir()
        sites.append(ImageSite(client, directory, *arguments, **options))
        return sites[-1]

    yield make
    for site in sites:
        site.end()
        site.client.disconnect()


@pytest.fixture
def site(make_site: MakeSite) -> ImageSite:
    """One builder, one provider."""
    return make_site()


@pytest.fixture
def place(make_site: MakeSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BuildSite]:
    """One builder that builds; in the end nothing temporary is left."""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    made = BuildSite(make_site(), tmp_path)
    yield made
    assert list(temporary.iterdir()) == []
    assert list((made.site.files.directory / NOTES).glob("*")) == []
    assert made.running.current() == {}
