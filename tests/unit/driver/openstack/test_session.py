# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.openstack.session`: openstacksdk as a plain HTTP client."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest

from nodepool.driver.openstack.clouds import Clouds
from nodepool.driver.openstack.session import close, make_client
from nodepool.testing.openstack import CLOUD_NAME, OpenStackSimulator


@pytest.mark.parametrize(("setting", "wanted"), [({}, 60.0), ({"api_timeout": 7}, 7.0)])
def test_timeout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: dict[str, Any], wanted: float) -> None:
    """clouds.yaml: api_timeout; without it no call waits for ever. With STATSD_HOST no socket is left open."""
    monkeypatch.setenv("STATSD_HOST", "127.0.0.1")
    with OpenStackSimulator() as simulator:
        file = simulator.write_clouds_yaml(tmp_path / "clouds.yaml", **setting)
        monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(file))
        client: Any = make_client(Clouds().region(CLOUD_NAME, None), "compute")
        assert client.request("/flavors", "GET").status_code == 200
        assert client.session.timeout == wanted
        close(client)
    # An open socket would be a warning, and that an error.
    del client
    gc.collect()


def test_no_netrc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A password for the cloud's host that somebody keeps for other programs is not sent."""
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login somebody password else\n", encoding="utf-8")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    with OpenStackSimulator() as simulator:
        monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(simulator.write_clouds_yaml(tmp_path / "clouds.yaml")))
        client: Any = make_client(Clouds().region(CLOUD_NAME, None), "compute")
        answer = client.request("/flavors", "GET")
        assert answer.status_code == 200
        assert "Authorization" not in answer.request.headers
        close(client)


def test_login_of_a_proxy_before_the_cloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """https://user:password@host in an address is sent as requests does it; an @ elsewhere is none."""
    with OpenStackSimulator() as simulator:
        monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(simulator.write_clouds_yaml(tmp_path / "clouds.yaml")))
        client: Any = make_client(Clouds().region(CLOUD_NAME, None), "compute")
        plain = client.get_endpoint()
        for url, wanted in (
            (plain.replace("://", "://some%40body:pass@"), "Basic c29tZUBib2R5OnBhc3M="),
            (f"{plain}/flavors?name=@", None),
        ):
            assert client.request(url, "GET").request.headers.get("Authorization") == wanted
        close(client)
