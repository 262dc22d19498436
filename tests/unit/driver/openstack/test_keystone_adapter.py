# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.openstack.keystone_adapter`: no answer takes more memory or time than it may."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from keystoneauth1.session import TCPKeepAliveAdapter

from nodepool.driver.framework.cloud_errors import CloudAway
from nodepool.driver.framework.http import bounded
from nodepool.driver.openstack.clouds import Clouds
from nodepool.driver.openstack.keystone_adapter import TLS_SETTINGS, KeystoneAdapter
from nodepool.driver.openstack.transport import Transport
from nodepool.testing.openstack import CLOUD_NAME, OpenStackSimulator
from tests.support.slow_server import SlowServer
from tests.unit.driver.framework.http.test_bounded import ENDLESS_ANSWERS, TIMEOUT_SECONDS


@pytest.fixture(params=sorted(ENDLESS_ANSWERS))
def server(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowServer]:
    monkeypatch.setattr(bounded, "MAX_ANSWER_BYTES", 1 << 20)
    pieces, pause = ENDLESS_ANSWERS[request.param]
    with SlowServer(pieces, pause) as running:
        yield running


def test_login(server: SlowServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What answers in place of Keystone, to the discovery or to the login."""
    with OpenStackSimulator() as simulator:
        entry = simulator.clouds_yaml_entry()
        entry["auth"]["auth_url"] = server.url
        file = simulator.write_clouds_yaml(tmp_path / "clouds.yaml", auth=entry["auth"], api_timeout=TIMEOUT_SECONDS)
        monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(file))
        transport = Transport("cloud-a", Clouds().region(CLOUD_NAME, None), 0)
        with pytest.raises(CloudAway, match="Provider cloud-a: listing servers failed"):
            transport.call("compute", "GET", "/servers", "listing servers")
        transport.close()


def test_call(server: SlowServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What answers in place of Nova."""
    with OpenStackSimulator() as simulator:
        settings: dict[str, Any] = {"compute_endpoint_override": server.url, "api_timeout": TIMEOUT_SECONDS}
        file = simulator.write_clouds_yaml(tmp_path / "clouds.yaml", **settings)
        monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(file))
        transport = Transport("cloud-a", Clouds().region(CLOUD_NAME, None), 0)
        with pytest.raises(CloudAway, match="Provider cloud-a: listing servers failed"):
            transport.call("compute", "GET", "/servers", "listing servers")
        transport.close()


@pytest.mark.skipif(
    "tls_ciphers" not in inspect.signature(TCPKeepAliveAdapter.__init__).parameters, reason="keystoneauth is too old"
)
def test_settings_are_kept() -> None:
    with requests.Session() as session:
        old = TCPKeepAliveAdapter()
        old.tls_ciphers = "HIGH"
        session.mount("https://", old)
        bounded.mount(session, 7, KeystoneAdapter, TLS_SETTINGS)
        new = session.adapters["https://"]
        assert isinstance(new, KeystoneAdapter)
        assert new.tls_ciphers == "HIGH"
