# SPDX-License-Identifier: Apache-2.0
"""Fixtures with the real Zuul client, for the conftest of directories that are run where Zuul is installed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.support.workplace import Workplace
from tests.support.zookeeper import ZooKeeperServer

if TYPE_CHECKING:
    from tests.support.zuul_client import ZuulClient, ZuulLog


@pytest.fixture
def zuul_log() -> Iterator[ZuulLog]:
    """What Zuul logs at WARNING and above. Anything there at the end fails the test."""
    from tests.support.zuul_client import ZuulLog

    with ZuulLog() as log:
        yield log
    assert not log.records, log.text()


@pytest.fixture
def zuul(zookeeper: ZooKeeperServer, chroot: str, workplace: Workplace, zuul_log: ZuulLog) -> Iterator[ZuulClient]:
    """A connected Zuul client in the test's chroot."""
    from tests.support.zuul_client import ZuulClient

    client = ZuulClient(zookeeper.tls_hosts(chroot), zookeeper.certificates)
    client.start()
    yield client
    client.stop()
