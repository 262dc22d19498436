# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.openstack.transport`: openstacksdk as a plain HTTP client."""

from __future__ import annotations

import gc
import json
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from keystoneauth1.exceptions import DiscoveryFailure
from keystoneauth1.session import Session
from openstack.proxy import Proxy

from nodepool.driver.framework.cloud_errors import CloudAway, CloudNotFound
from nodepool.driver.openstack import service_client
from nodepool.driver.openstack.api import Api
from nodepool.driver.openstack.clouds import Clouds, StatsdPlace
from nodepool.driver.openstack.images import OpenStackImages
from nodepool.driver.openstack.service_client import ENDPOINT_SECONDS, ServiceLimits, StatsdCounts, operation_name
from nodepool.driver.openstack.transport import Transport, close, make_http_client
from nodepool.metrics.statsd import client_of
from simulators.openstack import CLOUD_NAME, OpenStackSimulator
from simulators.openstack.identity_api import IdentityApi
from tests.support.manual_clock import monotonic_clock
from tests.support.recording_server import RecordingServer
from tests.support.statsd_server import StatsdServer


@pytest.mark.parametrize(("setting", "wanted"), [({}, 60.0), ({"api_timeout": 7}, 7.0)])
def test_timeout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: dict[str, Any], wanted: float) -> None:
    """clouds.yaml: api_timeout; without it no call waits for ever. With STATSD_HOST no socket is left open."""
    monkeypatch.setenv("STATSD_HOST", "127.0.0.1")
    with OpenStackSimulator() as simulator:
        file = simulator.write_clouds_yaml(tmp_path / "clouds.yaml", **setting)
        monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(file))
        client: Any = make_http_client(Clouds().region(CLOUD_NAME, None), "compute")
        assert client.request("/flavors", "GET").status_code == 200
        assert client.session.timeout == wanted
        close(client)
        client_of("127.0.0.1", 8125).close()
    # An open socket would be a warning, and that an error.
    del client
    gc.collect()


def test_calls_are_counted_where_clouds_yaml_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With openstacksdk's names; without a server in the environment, too, and by the quick calls as well."""
    with OpenStackSimulator() as simulator, StatsdServer() as server:
        place: dict[str, Any] = {"host": "127.0.0.1", "port": server.port, "prefix": "nodepool.task.north-1"}
        simulator.write_clouds_yaml(tmp_path / "clouds.yaml", metrics={"statsd": place})
        monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(tmp_path / "clouds.yaml"))
        transport = Transport("cloud-a", Clouds().region(CLOUD_NAME, None), 0)
        api = Api(transport)
        with closing(client_of("127.0.0.1", server.port)):
            api.servers()
            for _ in range(2):
                with pytest.raises(CloudNotFound):
                    api.delete_server("none")
            found = server.drain()
        transport.close()
    names = [f"nodepool.task.north-1.compute.{name}" for name in ("GET.servers_detail.200", "DELETE.server.404")]
    counted = [line.partition(":")[0] for line in found if line.endswith("|c")]
    assert [name for name in counted if name in names] == [names[0], names[1], names[1]]
    assert sum(line.endswith(".attempted:1|c") for line in found) == 3
    assert sum(line.endswith("|ms") for line in found) == 3
    assert all(line.startswith("nodepool.task.north-1.") for line in found)


@pytest.mark.parametrize(
    ("service", "path"),
    [
        *(("compute", path) for path in ("/servers", "/servers/detail", "/servers/4", "/servers/4/action", "/limits")),
        *(("compute", path) for path in ("/os-availability-zone", "/os-keypairs/a.b", "/flavors/1", "/flavors/detail")),
        *(("network", path) for path in ("/networks", "/security-groups", "/floatingips/7", "/ports/3", "/subnets")),
        *(("block-storage", path) for path in ("/volumes/detail", "/volumes/5", "/volumes/5/metadata", "/limits")),
        *(("image", path) for path in ("/images", "/images/9", "/images/9/file", "/info/import", "/images/9/tasks")),
        *(("object-store", path) for path in ("/images/name", "/analysis/name")),
    ],
)
def test_names_of_calls(service: str, path: str) -> None:
    """As openstacksdk makes them of the address of a call."""
    proxy: Any = Proxy(Session())
    assert operation_name(path) == "_".join(proxy._extract_name(f"https://cloud/v2.1{path}", service, "p1"))


def test_statsd_server_whose_name_is_not_known_at_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is looked for again once in a while; calls do not wait for that each time."""
    clock = monotonic_clock(monkeypatch, service_client)
    tries: list[float] = []
    client = SimpleNamespace(resolved=False, resolve=lambda: tries.append(clock.now), pipeline=MagicMock())
    monkeypatch.setattr(service_client, "client_of", lambda host, port: client)
    metrics = StatsdCounts(StatsdPlace("statsd.example.com", 8125, "openstack.api"))
    for _ in range(100):
        metrics.count("compute", "GET", "/servers", "200", 0.1)
        clock.pass_seconds(2.0)
    assert len(tries) == 3


def test_no_netrc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A password for the cloud's host that somebody keeps for other programs is not sent."""
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login somebody password else\n", encoding="utf-8")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    with OpenStackSimulator() as simulator:
        monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(simulator.write_clouds_yaml(tmp_path / "clouds.yaml")))
        client: Any = make_http_client(Clouds().region(CLOUD_NAME, None), "compute")
        answer = client.request("/flavors", "GET")
        assert answer.status_code == 200
        assert "Authorization" not in answer.request.headers
        close(client)


def test_login_of_a_proxy_before_the_cloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """https://user:password@host in an address is sent as requests does it; an @ elsewhere is none."""
    with OpenStackSimulator() as simulator:
        monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(simulator.write_clouds_yaml(tmp_path / "clouds.yaml")))
        client: Any = make_http_client(Clouds().region(CLOUD_NAME, None), "compute")
        plain = client.get_endpoint()
        for url, wanted in (
            (plain.replace("://", "://some%40body:pass@"), "Basic c29tZUBib2R5OnBhc3M="),
            (f"{plain}/flavors?name=@", None),
        ):
            assert client.request(url, "GET").request.headers.get("Authorization") == wanted
        close(client)


def test_endpoint_is_looked_up_once_in_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A catalog is long, and keystoneauth copies it for each look."""
    clock = monotonic_clock(monkeypatch, service_client)
    with OpenStackSimulator() as simulator:
        monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(simulator.write_clouds_yaml(tmp_path / "clouds.yaml")))
        client: Any = make_http_client(Clouds().region(CLOUD_NAME, None), "compute")
        looked_up: list[str] = []
        endpoint = client.get_endpoint()

        def look_up() -> str:
            looked_up.append(endpoint)
            return str(endpoint)

        monkeypatch.setattr(client, "get_endpoint", look_up)
        for wanted in (1, 1, 2):
            assert client.request("/flavors", "GET").status_code == 200
            assert len(looked_up) == wanted
            clock.pass_seconds(0.6 * ENDPOINT_SECONDS)
        close(client)


def test_endpoint_without_a_version_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """O-21: what is asked for at the wrong place seems to be gone."""
    clock = monotonic_clock(monkeypatch, service_client)
    with OpenStackSimulator() as simulator:
        monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(simulator.write_clouds_yaml(tmp_path / "clouds.yaml")))
        client: Any = make_http_client(Clouds().region(CLOUD_NAME, None), "image")
        right = str(client.get_endpoint())
        assert "/v2" in right
        bare = right.split("/v2")[0]
        told = [bare, right, bare]
        monkeypatch.setattr(client, "get_endpoint", lambda: told.pop(0))
        with pytest.raises(DiscoveryFailure, match=f"the image service at {bare}/* reports no version"):
            client.request("/images", "GET", raise_exc=False)
        assert client.request("/images", "GET").status_code == 200, "looked up again at once"
        clock.pass_seconds(1.1 * ENDPOINT_SECONDS)
        assert client.request("/images", "GET").status_code == 200, "the one that is known stays"
        assert told == []
        close(client)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        ({"kind": "500"}, "deleting an image failed: 500 "),
        ({"kind": "503"}, "deleting an image failed: 503 The server is currently unavailable"),
        ({"kind": "html"}, "deleting an image failed: 50"),
        ({"kind": "404"}, r"the image service at http://127.0.0.1:\d+/image/? reports no version \(.*404"),
        ({"kind": "drop"}, "deleting an image failed: no answer from http://127.0.0.1:"),
    ],
)
def test_deletion_while_a_service_tells_no_versions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: dict[str, Any], text: str
) -> None:
    """O-21: an image that is still there is not taken for gone; the error says what the service answers."""
    with OpenStackSimulator() as simulator:
        monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(simulator.write_clouds_yaml(tmp_path / "clouds.yaml")))
        with simulator.cloud() as cloud:
            image = str(cloud.images.add_active("kept")["id"])
        transport = Transport("cloud-a", Clouds().region(CLOUD_NAME, None), 0)
        api = Api(transport)
        simulator.change(errors=[{"operation": "image.versions", **error}])
        with pytest.raises(CloudAway, match=text) as caught:
            OpenStackImages("cloud-a", api, transport.stopped).delete(image)
        assert ("web page" in str(caught.value)) is ("reports no version" in text)
        simulator.change(errors=[])
        OpenStackImages("cloud-a", api, transport.stopped).delete(image)
        with simulator.cloud() as cloud:
            assert image not in cloud.images.images
        transport.close()


@pytest.mark.parametrize("body", [{"versions": []}, {"versions": None}, 7, "text", [], {"version": {"id": "v2"}}])
def test_odd_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: Any) -> None:
    """What keystoneauth stumbles over is an answer that cannot be understood, no error of ours."""
    content = json.dumps(body).encode()
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    with OpenStackSimulator() as simulator, RecordingServer(lambda _: head.encode() + content) as service:
        file = simulator.write_clouds_yaml(tmp_path / "clouds.yaml")
        monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(file))
        whole = IdentityApi._catalog

        def catalog(api: IdentityApi, request: Any) -> Any:
            found = whole(api, request)
            for entry in found:
                for endpoint in entry["endpoints"] if entry["type"] == "image" else ():
                    endpoint["url"] = service.url
            return found

        monkeypatch.setattr(IdentityApi, "_catalog", catalog)
        transport = Transport("cloud-a", Clouds().region(CLOUD_NAME, None), 0)
        with pytest.raises(CloudAway, match=r"the answer cannot be understood: .*is it a web page or a proxy"):
            Api(transport).images()
        transport.close()


@pytest.mark.parametrize("setting", [{}, {"concurrency": {"compute": 1}}])
def test_wall_clock_that_is_set_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: dict[str, Any]) -> None:
    """Calls go on: none waits until the clock says again what it said when the client was made."""
    with OpenStackSimulator() as simulator:
        file = simulator.write_clouds_yaml(tmp_path / "clouds.yaml", **setting)
        monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(file))
        client: Any = make_http_client(Clouds().region(CLOUD_NAME, None), "compute")
        true_clock = time.time
        monkeypatch.setattr("time.time", lambda: true_clock() - 600)
        for _ in range(3):
            assert client.request("/flavors", "GET").status_code == 200
        close(client)


def test_as_many_calls_at_once_as_clouds_yaml_says() -> None:
    turns = ServiceLimits("compute", 0.0, 2)
    inside: list[int] = []
    seen: list[int] = []

    def call(number: int) -> None:
        with turns:
            inside.append(number)
            seen.append(len(inside))
            inside.remove(number)

    with turns, ThreadPoolExecutor(8) as pool:
        list(pool.map(call, range(200)))
    assert max(seen) == 1


def test_calls_as_often_as_clouds_yaml_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """rate_limit and concurrency of the service are taken from there."""
    with OpenStackSimulator() as simulator:
        limits: dict[str, Any] = {"rate_limit": {"compute": 500.0}, "concurrency": {"compute": 3}}
        file = simulator.write_clouds_yaml(tmp_path / "clouds.yaml", **limits)
        monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(file))
        client: Any = make_http_client(Clouds().region(CLOUD_NAME, None), "compute")
        assert client.request("/flavors", "GET").status_code == 200
        assert client._turns._limiter.rate == 500
        assert client._turns._places._initial_value == 3
        close(client)
