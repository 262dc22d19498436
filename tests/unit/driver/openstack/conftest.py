# SPDX-License-Identifier: Apache-2.0
"""Fixtures: a cloud without threads, and the time of the package."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from openstack.cloud import _utils

from nodepool import clock as package_clock
from nodepool.driver.openstack.clouds import Clouds
from nodepool.driver.openstack.transport import make_http_client
from simulators.openstack import CLOUD_NAME, OpenStackSimulator
from tests.support.manual_clock import ManualClock
from tests.support.recording_server import RecordingServer
from tests.unit.driver.openstack.support import MakeSite, Site, StubCloud, load, section


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    """The monotonic time of the whole package, which passes at once for those that sleep."""
    manual = ManualClock()
    changed = {"monotonic": manual, "sleep": manual.pass_seconds}
    monkeypatch.setattr(package_clock, "time", SimpleNamespace(**{**vars(time), **changed}))
    return manual


@pytest.fixture(autouse=True)
def _host_without_ipv6(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever this host has. A function of openstacksdk: there is no other way to say it."""
    monkeypatch.setattr(_utils, "localhost_supports_ipv6", lambda: False)


@pytest.fixture
def make_cloud(clock: ManualClock) -> Callable[..., StubCloud]:
    """Makes the cloud of a provider section: arguments as of `section`; ``settings`` are those of clouds.yaml."""

    def make(label: dict[str, Any] | None = None, *, settings: dict[str, Any] | None = None, **more: Any) -> StubCloud:
        return StubCloud(load(section(label, **more))[0], settings, clock)

    return make


@pytest.fixture
def cloud(make_cloud: Callable[..., StubCloud]) -> StubCloud:
    return make_cloud()


@pytest.fixture
def clouds_yaml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the file is looked for."""
    path = tmp_path / "clouds.yaml"
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(path))
    return path


@pytest.fixture
def make_site(clouds_yaml: Path, clock: ManualClock) -> MakeSite:
    @contextmanager
    def make(path: str = "/v2.1", **settings: Any) -> Iterator[Site]:
        with OpenStackSimulator() as identity, RecordingServer() as service:
            override = {"compute_endpoint_override": f"{service.url}{path}"}
            identity.write_clouds_yaml(clouds_yaml, **override, **settings)
            client: Any = make_http_client(Clouds().region(CLOUD_NAME, None), "compute")
            yield Site(client, service)
            client.close()

    return make
