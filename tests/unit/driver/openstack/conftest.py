# SPDX-License-Identifier: Apache-2.0
"""Fixtures: a cloud without threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from nodepool.driver.openstack import cloud as cloud_module
from tests.unit.driver.openstack.support import StubCloud, load, section


@pytest.fixture(autouse=True)
def _host_without_ipv6(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever this host has: `CloudNetworks` are told otherwise by the tests that are about it."""
    monkeypatch.setattr(cloud_module, "host_has_ipv6", lambda: False)


@pytest.fixture
def make_cloud() -> Callable[..., StubCloud]:
    """Makes the cloud of a provider section: arguments as of `section`; ``settings`` are those of clouds.yaml."""

    def make(label: dict[str, Any] | None = None, *, settings: dict[str, Any] | None = None, **more: Any) -> StubCloud:
        return StubCloud(load(section(label, **more))[0], settings)

    return make


@pytest.fixture
def cloud(make_cloud: Callable[..., StubCloud]) -> StubCloud:
    return make_cloud()
