# SPDX-License-Identifier: Apache-2.0
"""Every key of clouds.yaml that openstacksdk and keystoneauth read: it does what it does there, or is told of.

The truth is the source of openstacksdk 4.22 (``openstack.config``, ``openstack.cloud``), which
`test_no_key_is_forgotten` looks through for keys, and keystoneauth's ``Session`` and ``Adapter``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import openstack
import pytest
import yaml
from keystoneauth1.exceptions import ConnectFailure

from nodepool.driver.framework.cloud_errors import CloudAway
from nodepool.driver.openstack.adapter import OpenStackAdapter, unheeded
from nodepool.driver.openstack.clouds import CloudProblem, Clouds, settings_of
from nodepool.driver.openstack.instance import CloudNetworks
from nodepool.driver.openstack.transport import Transport, close, make_http_client
from simulators.openstack import CLOUD_NAME, OpenStackSimulator
from tests.support.recording_server import OK, RecordingServer, Sent
from tests.unit.driver.openstack.support import load, section

Settings = dict[str, Any]


@pytest.fixture
def region_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """openstacksdk's object for a cloud with these settings; ``_file`` = more for the top of the file."""

    def make(settings: Settings) -> Any:
        auth = {"auth_url": "https://127.0.0.1:1/v3", "username": "u", "password": "secret", "project_name": "p"}
        own = {key: value for key, value in settings.items() if key != "_file"}
        text = yaml.safe_dump({"clouds": {"one": {"auth": auth, **own}}, **settings.get("_file", {})})
        (tmp_path / "clouds.yaml").write_text(text, encoding="utf-8")
        monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(tmp_path / "clouds.yaml"))
        return Clouds().region("one", None)

    return make


class Wire:
    """A client of the compute service of a simulated cloud, and what it sends there."""

    def __init__(self, client: Any, sent: list[Sent]) -> None:
        self.client = client
        self.sent = sent

    def call(self) -> Sent:
        """Twice as keystoneauth makes it, then quickly if it can be: all three are the same."""
        for _ in range(3):
            self.client.request("/servers/1", "GET", raise_exc=False)
        assert len({(sent.first, sent.headers.get("openstack-api-version")) for sent in self.sent}) == 1
        return self.sent[-1]


@pytest.fixture
def wire_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    @contextmanager
    def make(settings: Settings, answer: Callable[[Sent], bytes] = lambda _: OK) -> Iterator[Wire]:
        with OpenStackSimulator() as identity, RecordingServer(answer) as service:
            given = {key: _with_address(value, service.url) for key, value in settings.items()}
            if not any("endpoint" in key for key in given):
                given["compute_endpoint_override"] = f"{service.url}/v2.1"
            file = identity.write_clouds_yaml(tmp_path / "clouds.yaml", **given)
            monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(file))
            client = make_http_client(Clouds().region(CLOUD_NAME, None), "compute")
            yield Wire(client, service.sent)
            close(client)

    return make


def _with_address(value: Any, url: str) -> Any:
    return value.replace("URL", url) if isinstance(value, str) else value


@pytest.mark.parametrize(
    ("settings", "first", "version"),
    [
        # cloud_region.get_endpoint; %()s is filled in by keystoneauth (adapter, "endpoint_override").
        ({"compute_endpoint_override": "URL/v2.1"}, "GET /v2.1/servers/1 HTTP/1.1", None),
        ({"compute_endpoint": "URL/v2.1"}, "GET /v2.1/servers/1 HTTP/1.1", None),
        ({"compute_endpoint_override": "URL/v2.1/%(project_id)s"}, "GET /v2.1/PROJECT/servers/1 HTTP/1.1", None),
        # cloud_region.get_default_microversion, _get_version_request.
        ({"compute_default_microversion": "2.79"}, "GET /v2.1/servers/1 HTTP/1.1", "compute 2.79"),
        ({"compute_api_version": "2.79"}, "GET /v2.1/servers/1 HTTP/1.1", "compute 2.79"),
    ],
)
def test_calls(wire_of: Callable[..., Any], settings: Settings, first: str, version: str | None) -> None:
    # keystoneauth looks whether the service has the version.
    version_document = {"id": "v2.1", "status": "CURRENT", "version": "2.93", "min_version": "2.1"}

    def answer(sent: Sent) -> bytes:
        links = [{"rel": "self", "href": f"http://{sent.headers['host']}/v2.1"}]
        document = json.dumps({"version": version_document | {"links": links}}).encode()
        body = document if sent.first.split()[1].endswith("/v2.1") else b"{}"
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        return head.encode() + body

    with wire_of(settings, answer) as wire:
        wire.sent.clear()
        sent = wire.call()
        assert sent.first == first.replace("PROJECT", wire.client.get_project_id())
        assert sent.headers.get("openstack-api-version") == version


@pytest.mark.parametrize(
    ("settings", "status", "calls"),
    [
        # cloud_region.get_status_code_retries, get_retriable_status_codes, get_connect_retries and the delays.
        ({}, 503, 1),
        ({"compute_status_code_retries": 2, "compute_status_code_retry_delay": 0.01}, 503, 3),
        ({"status_code_retries": 1, "status_code_retry_delay": 0.01, "retriable_status_codes": "409,503"}, 409, 2),
        ({"connect_retries": 2, "connect_retry_delay": 0.01}, 0, 3),
        ({"compute_connect_retries": 1, "compute_connect_retry_delay": 0.01}, 0, 2),
    ],
)
def test_repeats(wire_of: Callable[..., Any], settings: Settings, status: int, calls: int) -> None:
    """0: the connection ends without an answer."""
    answer = f"HTTP/1.1 {status} Odd\r\nContent-Length: 0\r\n\r\n".encode() if status else b""
    with wire_of(settings, lambda _: answer) as wire:
        with pytest.raises(ConnectFailure) if status == 0 else nullcontext():
            wire.client.request("/servers", "POST", raise_exc=False)
        assert len(wire.sent) == calls


SESSION: list[tuple[Settings, str, Any]] = [
    # cloud_region.get_session, get_requests_verify_args.
    ({"api_timeout": 2.5}, "timeout", 2.5),
    ({"compute_timeout": 7}, "timeout", 7.0),
    ({"verify": False}, "verify", False),
    ({"insecure": "true"}, "verify", False),
    ({"cacert": __file__}, "verify", __file__),
    ({"cert": __file__}, "cert", __file__),
    ({"cert": __file__, "key": __file__}, "cert", (__file__, __file__)),
]


@pytest.mark.parametrize(("settings", "name", "wanted"), SESSION)
def test_session(wire_of: Callable[..., Any], settings: Settings, name: str, wanted: Any) -> None:
    """The connections of quick calls have them from the session: `test_quick_calls`, `test_bounded`."""
    with wire_of(settings) as wire:
        assert getattr(wire.client.session, name) == wanted


@pytest.mark.parametrize(
    ("settings", "found"),
    [
        # cloud_region.get_interface, get_region_name, get_service_type, get_service_name; loader._get_region.
        ({}, "127.0.0.1"),
        ({"interface": "internal"}, "localhost"),
        ({"compute_interface": ["internal", "public"]}, "localhost"),
        ({"endpoint_type": "internal"}, "localhost"),
        ({"region_name": "Two"}, "127.0.0.1"),
        ({"region_name": None, "regions": ["Two"]}, "127.0.0.1"),
        ({"region_name": None, "regions": [{"name": "Two", "values": {"interface": "internal"}}]}, "localhost"),
        ({"compute_region_name": "Two"}, "127.0.0.1"),
        ({"compute_region_name": "Three"}, ""),
        ({"compute_service_type": "compute", "compute_service_name": "nova"}, "127.0.0.1"),
        ({"compute_service_name": "other"}, ""),
        ({"has_compute": False}, ""),
    ],
)
def test_catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Settings, found: str) -> None:
    """Which endpoint of the catalog is used; "" = there is none."""
    with OpenStackSimulator() as cloud:
        cloud.change(regions=["RegionOne", "Two"])
        file = cloud.write_clouds_yaml(tmp_path / "clouds.yaml")
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
        content["clouds"][CLOUD_NAME] |= settings
        content["clouds"][CLOUD_NAME] = {k: v for k, v in content["clouds"][CLOUD_NAME].items() if v is not None}
        file.write_text(yaml.safe_dump(content), encoding="utf-8")
        monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(file))
        transport = Transport("cloud-a", Clouds().region(CLOUD_NAME, None), 0)
        if not found:
            # Each of them is no cloud without it.
            with pytest.raises(CloudAway, match="the cloud has no compute service for us"):
                transport.has("compute")
        else:
            assert transport.call("compute", "GET", "/flavors", "listing").status == 200
            client: Any = transport._client("compute")
            assert found in client.get_endpoint()
        transport.close()


NETWORK: dict[str, Any] = {"name": "n"}


@pytest.mark.parametrize(
    ("settings", "name", "wanted"),
    [
        # cloud/_network_common.py, cloud_region.get_*_networks, loader._fix_backwards_networks; see also
        # test_addresses_as_sdk, which asks openstacksdk for the addresses.
        ({"private": True}, "private", True),
        ({"force_ipv4": True}, "only_v4", True),
        ({"prefer_ipv6": False}, "only_v4", True),
        ({"_file": {"client": {"force_ipv4": True}}}, "only_v4", True),
        ({"_file": {"client": {"broken-ipv6": True}}}, "only_v4", True),
        ({"use_external_network": False}, "external", False),
        ({"use_internal_network": False}, "inside", False),
        ({"floating_ip_source": None}, "floating", False),
        ({"floating_ip_source": "None"}, "floating", False),
        ({"requires_floating_ip": False}, "floating", False),
        ({"networks": [NETWORK | {"routes_externally": True}]}, "routed", ["n"]),
        ({"networks": [NETWORK | {"routes_ipv4_externally": True}]}, "routed", ["n"]),
        ({"networks": [NETWORK | {"routes_externally": True, "routes_ipv4_externally": False}]}, "internal", ["n"]),
        ({"networks": [NETWORK | {"default_interface": True}]}, "default", "n"),
        ({"networks": [NETWORK | {"nat_source": True}]}, "nat_source", "n"),
        ({"networks": [NETWORK | {"nat_destination": True}]}, "nat_destination", "n"),
        ({"external_network": "n"}, "routed", ["n"]),
        ({"internal_network": "n"}, "nat_destination", "n"),
    ],
)
def test_networks(region_of: Callable[..., Any], settings: Settings, name: str, wanted: Any) -> None:
    found = CloudNetworks.of(settings_of(region_of(settings)))
    assert getattr(found, name) == wanted
    assert getattr(CloudNetworks.of({}), name) != wanted


def test_images_without_an_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, region_of: Callable[..., Any]
) -> None:
    """image/_proxy.py, create_image: ``disable_vendor_agent`` is on each image, and wins over its own properties."""
    with OpenStackSimulator() as simulator:
        file = simulator.write_clouds_yaml(tmp_path / "c.yaml", disable_vendor_agent={"vm_mode": "hvm"})
        monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(file))
        adapter = OpenStackAdapter(load(section(cloud=CLOUD_NAME), Clouds())[0])
        (tmp_path / "image").write_bytes(b"content")
        image: Any = SimpleNamespace(meta={"vm_mode": "xen", "os": "linux"})
        image_id = adapter.uploadImage(image, "i", str(tmp_path / "image"), "qcow2", {"nodepool_upload_id": "1"})
        with simulator.cloud() as cloud:
            made = cloud.images.images.get(image_id)
            assert [made[key] for key in ("vm_mode", "os", "nodepool_upload_id")] == ["hvm", "linux", "1"]
        adapter.stop()


@pytest.mark.parametrize(("version", "networks"), [("2.36", None), ("2.37", "auto"), ("latest", "auto")])
def test_server_without_networks(make_cloud: Callable[..., Any], version: str, networks: str | None) -> None:
    """cloud/_compute.py, create_server: from 2.37 on Nova wants to be told that it may choose them."""
    from tests.unit.driver.openstack.support import body, machine

    cloud = make_cloud(settings={"compute_default_microversion": version})
    machine(cloud).advance()
    assert body(cloud).get("networks") == networks


#: What is told by ``nodepool check``, and in the log at the start of a provider; True: only a warning.
UNHEEDED: list[tuple[Settings, bool, str]] = [
    ({"private": "false"}, False, "private is 'false'"),
    ({"force_ipv4": "no"}, False, "force_ipv4 is 'no'"),
    ({"use_external_network": "no"}, False, "use_external_network is 'no'"),
    ({"image_api_use_tasks": "yes"}, False, "image_api_use_tasks is 'yes'"),
    ({"floating_ip_source": "nova"}, False, "floating_ip_source is 'nova'"),
    ({"disable_vendor_agent": True}, False, "disable_vendor_agent is no mapping"),
    ({"image_api_version": 1}, False, "image_api_version is 1, and only 2 can be used"),
    ({"volume_api_version": 1}, True, "block_storage_api_version is 1, and only 2 and 3 can be used"),
    ({"compute_endpoint_override": "https://nova.example.com/"}, False, "compute_endpoint_override has no version"),
    ({"vendor_hook": "otcextensions.sdk:load"}, True, "vendor_hook is code that is not run here"),
    ({"profile": "otc"}, True, "vendor_hook is code that is not run here"),
    ({"timing": True}, True, "timing keeps a record of each call"),
    ({"metrics": {"influxdb": {"host": "h"}}, "additional_metric_tags": {"a": "b"}}, True, "not reported to InfluxDB"),
    ({"_file": {"metrics": {"influxdb": {"host": "h"}}}}, True, "not reported to InfluxDB"),
    ({"metrics": {"statsd": {"host": "h", "port": "many"}}}, True, "port of metrics.statsd is no number"),
    ({"_file": {"cache": {"expiration": {"server": 5}}}}, True, "cache is not used"),
    ({"_file": {"cache": {"auth": True}}}, True, "cache is not used"),
]


@pytest.mark.filterwarnings("ignore:Support for InfluxDB")
@pytest.mark.parametrize(("settings", "ok", "text"), UNHEEDED)
def test_what_is_not_done_is_told(region_of: Callable[..., Any], settings: Settings, ok: bool, text: str) -> None:
    (found,) = unheeded(region_of(settings))
    assert found.ok is ok
    assert text in found.text
    assert found.status == ("warning" if ok else "failed")


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"profile": "rackspace"},
        {"private": True, "force_ipv4": False, "floating_ip_source": "Neutron", "secgroup_source": "None"},
        {"compute_endpoint_override": "https://nova.example.com/v2.1/%(project_id)s", "image_api_version": "2.9"},
        {"_file": {"client": {"force_ipv4": True}, "metrics": {"statsd": {"host": "h"}}}},
    ],
)
def test_nothing_is_told_of_what_is_done(region_of: Callable[..., Any], settings: Settings) -> None:
    assert list(unheeded(region_of(settings))) == []


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"rate_limit": 5}, "rate_limit of the compute service has a wrong type"),
        ({"rate_limit": {"image": "often"}}, "rate_limit of the image service has a wrong type"),
        ({"concurrency": {"volume": []}}, ""),
        ({"concurrency": {"volume": "x"}}, "concurrency of the block-storage service has a wrong type"),
        ({"connect_retries": "x"}, "connect_retries of the compute service has a wrong type"),
        ({"network_status_code_retries": "x"}, "status_code_retries of the network service has a wrong type"),
        ({"retriable_status_codes": "x"}, "retriable_status_codes of the compute service has a wrong type"),
        ({"has_network": "no"}, "has_service of the network service has a wrong type: no true or false"),
    ],
)
def test_settings_of_services_that_cannot_be_read(region_of: Callable[..., Any], settings: Settings, text: str) -> None:
    """Bad input: named when the provider is started, not by each call."""
    if not text:
        region_of(settings)
        return
    with pytest.raises(CloudProblem, match=re.escape(text)):
        region_of(settings)


def test_check_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """``nodepool check`` and the log of the launcher."""
    with OpenStackSimulator() as simulator:
        file = simulator.write_clouds_yaml(tmp_path / "clouds.yaml", floating_ip_source="nova")
        monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(file))
        adapter = OpenStackAdapter(load(section(cloud=CLOUD_NAME), Clouds())[0])
        found = [result for result in adapter.preflight() if "clouds.yaml" in result.subject]
        assert [result.status for result in found] == ["failed"]
        assert "floating_ip_source is 'nova', and only Neutron makes floating IPs; leave it out" in caplog.text
        adapter.stop()


#: Keys that openstacksdk reads, and where their rows are. Of services: without the prefix.
TESTED = {
    "in the tables above": "additional_metric_tags api_timeout api_version cacert cache cert client concurrency "
    "connect_retries connect_retry_delay default_microversion disable_vendor_agent endpoint endpoint_override "
    "floating_ip_source force_ipv4 image_api_use_tasks influxdb insecure interface key metrics networks prefer_ipv6 "
    "private rate_limit region_name regions requires_floating_ip retriable_status_codes service_name service_type "
    "status_code_retries status_code_retry_delay timing use_external_network use_internal_network vendor_hook verify "
    "external_network internal_network profile",
    "test_clouds.py": "auth auth_type clouds image_format statsd password username host port prefix",
    "loader only: a method of a login that its plug-in is told": "auth_methods",
    "of an argument of a command line": "timeout",
    "of InfluxDB and Prometheus, which are not reported to": "collector_registry database measurement use_udp",
    "of security groups that are made or changed, which is not done": "secgroup_source",
    "of the cache": "auth expiration_time max_age class path arguments expiration",
    "in an explanation": "example",
}


def test_no_key_is_forgotten() -> None:
    root = Path(openstack.__file__).parent
    files = [*root.glob("config/*.py"), *root.glob("cloud/*.py"), root / "connection.py", root / "proxy.py"]
    read = re.compile(
        r"(?:_get_config|_get_service_config|config(?:_dict|_settings)?\.(?:get|pop))\(\s*'(\w+)'|config\['(\w+)'\]"
    )
    found = {name for file in files for names in read.findall(file.read_text(encoding="utf-8")) for name in names}
    known = {name for names in TESTED.values() for name in names.split()}
    assert found - {""} - known == set()
