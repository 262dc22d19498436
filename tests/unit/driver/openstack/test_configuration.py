# SPDX-License-Identifier: Apache-2.0
"""Provider sections, and each key of clouds.yaml that openstacksdk reads: it does what it does there, or is reported.

The truth is the source of openstacksdk 4.22 (``openstack.config``, ``openstack.cloud``), which
`test_no_key_is_forgotten` looks through for keys, and keystoneauth's ``Session`` and ``Adapter``. Whatever else stands
in the file: a cloud can be used, or the problem says why not, without a secret.
"""

from __future__ import annotations

import errno
import json
import re
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import openstack
import pytest
import voluptuous as v
import yaml

from nodepool.driver.framework.cloud_errors import CloudAway
from nodepool.driver.openstack import OpenStackDriver
from nodepool.driver.openstack.adapter import OpenStackAdapter, unheeded
from nodepool.driver.openstack.clouds import CloudProblem, Clouds, host_has_ipv6, settings_of, statsd_of
from nodepool.driver.openstack.instance import CloudNetworks
from nodepool.driver.openstack.transport import Transport, close, make_http_client
from simulators.openstack import CLOUD_NAME, OpenStackSimulator
from tests.support.recording_server import Sent
from tests.unit.driver.openstack.support import MakeSite, StubClouds, label_section, load, only_label, section

Settings = dict[str, Any]
SECRET = "pass-W0RD"
AUTH = {"auth_url": "https://127.0.0.1:1/v3", "username": "u", "password": SECRET, "project_name": "p"}


def write(file: Path, settings: Settings) -> None:
    """A cloud with these settings; ``auth`` is merged, None = without it; ``_file``: for the top of the file."""
    auth = {key: value for key, value in {**AUTH, **settings.get("auth", {})}.items() if value is not None}
    own = {key: value for key, value in settings.items() if key not in ("_file", "auth")}
    file.write_text(yaml.safe_dump({"clouds": {"one": {"auth": auth, **own}}, **settings.get("_file", {})}), "utf-8")


@pytest.fixture
def region_of(clouds_yaml: Path) -> Callable[..., Any]:
    """openstacksdk's object for a cloud with these settings."""

    def make(settings: Settings) -> Any:
        write(clouds_yaml, settings)
        return Clouds().region("one", None)

    return make


# -- what openstacksdk does --

DOCUMENT = {"id": "v2.1", "status": "CURRENT", "version": "2.93", "min_version": "2.1"}


@pytest.mark.parametrize(
    ("path", "settings", "version"),
    [
        # cloud_region.get_endpoint; %()s is filled in by keystoneauth (adapter, "endpoint_override").
        ("/v2.1", {}, None),
        ("/v2.1/%(project_id)s", {}, None),
        # cloud_region.get_default_microversion, _get_version_request.
        ("/v2.1", {"compute_default_microversion": "2.79"}, "compute 2.79"),
        ("/v2.1", {"compute_api_version": "2.79"}, "compute 2.79"),
    ],
)
def test_calls(make_site: MakeSite, path: str, settings: Settings, version: str | None) -> None:
    """Twice as keystoneauth makes it, which looks whether the service has the version, then quickly."""

    def answer(sent: Sent) -> bytes:
        links = [{"rel": "self", "href": f"http://{sent.headers['host']}/v2.1"}]
        document = json.dumps({"version": DOCUMENT | {"links": links}}).encode()
        body = document if sent.first.split()[1].endswith("/v2.1") else b"{}"
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        return head.encode() + body

    with make_site(path, **settings) as site:
        site.service.answer = answer
        assert [site.is_quick() for _ in range(3)][-1]
        first = f"GET {path % {'project_id': site.client.get_project_id()}}/servers/1 HTTP/1.1"
        calls = [sent for sent in site.service.sent if "servers" in sent.first]
        assert {(sent.first, sent.headers.get("openstack-api-version")) for sent in calls} == {(first, version)}


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        # cloud_region.get_session, get_requests_verify_args. Without api_timeout no call waits for ever.
        ({}, (60.0, True, None)),
        ({"api_timeout": 2.5, "insecure": "true"}, (2.5, False, None)),
        ({"cacert": __file__, "cert": __file__, "key": __file__}, (60.0, __file__, (__file__, __file__))),
    ],
)
def test_session(make_site: MakeSite, settings: Settings, wanted: tuple[Any, ...]) -> None:
    """The connections of quick calls have them from the session."""
    with make_site(**settings) as site:
        session = site.client.session
        assert (session.timeout, session.verify, session.cert) == wanted


@pytest.mark.parametrize(
    ("settings", "found"),
    [
        # cloud_region.get_interface, get_region_name, get_service_type, get_service_name; loader._get_region.
        ({}, "127.0.0.1"),
        ({"interface": "internal"}, "localhost"),
        ({"compute_interface": ["internal", "public"]}, "localhost"),
        ({"endpoint_type": "internal"}, "localhost"),
        ({"region_name": None, "regions": [{"name": "Two", "values": {"interface": "internal"}}]}, "localhost"),
        ({"compute_region_name": "Three"}, ""),
        ({"compute_service_type": "compute", "compute_service_name": "nova"}, "127.0.0.1"),
        ({"compute_service_name": "other"}, ""),
        ({"has_compute": False}, ""),
    ],
)
def test_catalog(clouds_yaml: Path, settings: Settings, found: str) -> None:
    """Which endpoint of the catalog is used; "" = there is none."""
    with OpenStackSimulator() as cloud:
        cloud.change(regions=["RegionOne", "Two"])
        entry = {key: value for key, value in (cloud.clouds_yaml_entry() | settings).items() if value is not None}
        clouds_yaml.write_text(yaml.safe_dump({"clouds": {CLOUD_NAME: entry}}), "utf-8")
        transport = Transport("cloud-a", Clouds().region(CLOUD_NAME, None), 0)
        if not found:
            # Each of them is no cloud without it.
            with pytest.raises(CloudAway, match="the cloud has no compute service for us"):
                transport.has("compute")
        else:
            client: Any = make_http_client(transport.region, "compute")
            assert f"//{found}:" in client.get_endpoint()
            close(client)
        transport.close()


NETWORK: dict[str, Any] = {"name": "n"}


@pytest.mark.parametrize(
    ("settings", "name", "wanted"),
    [
        # cloud/_network_common.py, cloud_region.get_*_networks, loader._fix_backwards_networks; see also
        # test_addresses, which asks openstacksdk for the addresses.
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
    """O-12, O-13"""
    assert getattr(CloudNetworks.of(settings_of(region_of(settings))), name) == wanted
    assert getattr(CloudNetworks.of({}), name) != wanted


PLACES: list[Settings] = [
    {},
    {"host": "127.0.0.2"},
    {"port": 8126},
    {"prefix": "a.b"},
    {"host": "127.0.0.3", "port": "7"},
]


@pytest.mark.parametrize("general", PLACES)
@pytest.mark.parametrize("own", PLACES)
@pytest.mark.parametrize("environ", [{}, {"HOST": "127.0.0.4", "PORT": "8128"}, {"PREFIX": "of.environment"}])
def test_metrics(region_of: Any, monkeypatch: pytest.MonkeyPatch, environ: Any, own: Any, general: Any) -> None:
    """``metrics.statsd`` of the cloud, the environment, ``metrics.statsd`` of the file: as openstacksdk puts them."""
    for name, value in environ.items():
        monkeypatch.setenv(f"STATSD_{name}", value)
    region = region_of({"metrics": {"statsd": own}, "_file": {"metrics": {"statsd": general}}})
    found, sdk = statsd_of(region), region.get_statsd_client()
    assert (found is None) == (sdk is None)
    if found is not None:
        sdk.close()
        # Its client has no public name for the address.
        place = (found.host.replace("localhost", "127.0.0.1"), found.port)
        assert (place, found.prefix) == (sdk._addr[:2], region.get_statsd_prefix())


@pytest.mark.parametrize(
    ("address", "found"),
    [("fd00::2", True), ("2001:db8::2", True), ("fe80::2", False), ("::1", False), ("10.0.0.2", False), (None, False)],
)
def test_ipv6_of_the_host(monkeypatch: pytest.MonkeyPatch, address: str | None, found: bool) -> None:
    """O-12: as openstacksdk tells it; also where a sandbox forbids the question."""
    pytest.importorskip("psutil", reason="openstacksdk 3 asks another library")

    def addresses() -> Any:
        if address is None:
            raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        return {"eth0": [SimpleNamespace(family=family, address=address)]}

    monkeypatch.undo()
    monkeypatch.setattr("psutil.net_if_addrs", addresses)
    assert host_has_ipv6() is found
    monkeypatch.undo()


# -- what is not done, or cannot work --

#: What ``nodepool check`` reports, and in the log at the start of a provider; True: only a warning; None: nothing.
UNHEEDED: list[tuple[Settings, bool | None, str]] = [
    ({"private": "false"}, False, "private is 'false'"),
    ({"image_api_use_tasks": "yes"}, False, "image_api_use_tasks is 'yes'"),
    ({"floating_ip_source": "nova"}, False, "floating_ip_source is 'nova', and only Neutron makes floating IPs"),
    ({"disable_vendor_agent": True}, False, "disable_vendor_agent is no mapping"),
    ({"image_api_version": 1}, False, "image_api_version is 1, and only 2 can be used"),
    ({"volume_api_version": 1}, True, "block_storage_api_version is 1, and only 2 and 3 can be used"),
    ({"compute_endpoint_override": "https://nova.example.com/"}, False, "compute_endpoint_override has no version"),
    ({"profile": "otc"}, True, "vendor_hook is code that is not run here"),
    ({"timing": True}, True, "timing keeps a record of each call"),
    ({"metrics": {"influxdb": {"host": "h"}}, "additional_metric_tags": {"a": "b"}}, True, "not reported to InfluxDB"),
    ({"_file": {"metrics": {"influxdb": {"host": "h"}}}}, True, "not reported to InfluxDB"),
    ({"metrics": {"statsd": {"host": "h", "port": "many"}}}, True, "port of metrics.statsd is no number"),
    ({"_file": {"cache": {"expiration": {"server": 5}}}}, True, "cache is not used"),
    ({"_file": {"cache": {"auth": True}}}, True, "cache is not used"),
    ({"profile": "rackspace"}, None, ""),
    # What an operator may do, but should know.
    ({"verify": False}, None, "certificates are not verified"),
    ({"auth": {"auth_url": "http://k.example.org/v3"}}, None, "the password is sent without TLS"),
    *(({"auth": {"auth_url": f"http://{host}/v3"}}, None, "") for host in ("127.0.0.1:5000", "localhost", "[")),
    ({"auth": {"auth_url": f"https://proxy:{SECRET}@k.example.org/v3"}}, None, "auth_url has a password in it"),
    ({"private": True, "floating_ip_source": "Neutron", "secgroup_source": "None"}, None, ""),
    ({"compute_endpoint_override": "https://n/v2.1/%(project_id)s", "image_api_version": "2.9"}, None, ""),
    ({"_file": {"client": {"force_ipv4": True}, "metrics": {"statsd": {"host": "h"}}}}, None, ""),
]


@pytest.mark.filterwarnings("ignore:Support for InfluxDB")
@pytest.mark.parametrize(("settings", "ok", "text"), UNHEEDED)
def test_what_is_not_done_is_told(
    region_of: Callable[..., Any], caplog: pytest.LogCaptureFixture, settings: Settings, ok: bool | None, text: str
) -> None:
    """In the log when a provider starts; where something is not done, with what to do, in ``nodepool check``, too."""
    found = list(unheeded(region_of(settings)))
    assert [result.ok for result in found] == ([] if ok is None else [ok])
    OpenStackAdapter(load(section(cloud="one"), Clouds())[0]).stop()
    (*lines,) = (record.getMessage() for record in caplog.records if record.name == "nodepool.driver.openstack")
    assert len(lines) == (1 if text else 0)
    for line in lines:
        assert text in line
        assert SECRET not in line
        assert [line.partition(": ")[2]] == [f"{one.text}; {one.remedy}" for one in found] or ok is None


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"auth": {"password": None}}, "auth has no password; add it"),
        ({"auth": {"username": None}}, "auth has no username; add it"),
        ({"auth": {"auth_url": None}}, "auth"),
        ({"auth": {"auth_url": "hello"}}, "auth_url must begin with http:// or https://, not 'hello'"),
        ({"auth": {"project_name": None}}, "auth has no project_name; add it"),
        ({"api_timeout": "soon"}, "api_timeout must be a number of seconds, not 'soon'"),
        ({"cacert": "/no/such/file"}, "cacert: there is no file /no/such/file"),
        ({"cert": "/no/cert", "key": "/no/key"}, "cert or key: there is no file /no/cert"),
        ({"auth_type": "nosuch"}, ""),
        ({"rate_limit": 5}, "rate_limit of the compute service has a wrong type"),
        ({"rate_limit": {"image": "often"}}, "rate_limit of the image service has a wrong type"),
        ({"concurrency": {"volume": "x"}}, "concurrency of the block-storage service has a wrong type"),
        ({"connect_retries": "x"}, "connect_retries of the compute service has a wrong type"),
        ({"network_status_code_retries": "x"}, "status_code_retries of the network service has a wrong type"),
        ({"retriable_status_codes": "x"}, "retriable_status_codes of the compute service has a wrong type"),
        ({"has_network": "no"}, "has_service of the network service has a wrong type: no true or false"),
        # What openstacksdk can use is not refused.
        (
            {"auth_type": "v3token", "auth": dict.fromkeys(("username", "password", "project_name")) | {"token": "t"}},
            None,
        ),
        ({"auth": {"username": None, "user_id": "u", "project_name": None, "project_id": "p"}}, None),
        ({"auth": {"project_name": None, "system_scope": "all"}, "api_timeout": "30", "verify": False}, None),
        ({"concurrency": {"volume": []}}, None),
    ],
)
def test_settings_that_cannot_work(clouds_yaml: Path, settings: Settings, text: str | None) -> None:
    """Bad input: what is missing is named when the provider is started, not an hour later by each call."""
    write(clouds_yaml, settings)
    problem = Clouds().settings("one", None).problem
    if text is None:
        assert problem == ""
        return
    with pytest.raises(CloudProblem, match=re.escape(f"cloud 'one' in {clouds_yaml} cannot be used: ")) as caught:
        Clouds().region("one", None)
    assert text in str(caught.value) == problem
    assert SECRET not in problem


#: A few lines of aliases to aliases can mean billions of values.
BOMB = "a: &a [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{new}: &{new} [{','.join([f'*{old}'] * 10)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("content", "wanted"),
    [
        (None, "there is no clouds.yaml with the cloud 'one'"),
        ("clouds: [", "clouds.yaml cannot be read: .*correct the file"),
        ("clouds:\n  other: {}\n", "has no cloud 'one' .it has: other.; add it"),
        ("clouds:\n  one: 7\n", "cloud 'one' in .*must be a mapping"),
        ("clouds:\n  one: {auth: [7]}\n", "cloud 'one' in .*so must its auth"),
        ("7", "clouds.yaml cannot be read: .*correct the file"),
        ("", "one"),
        # Errors of the YAML parser quote the line; that line may be the one with the password.
        (f"clouds:\n  one:\n    password: {SECRET}: x\n", "line 3"),
        *(
            (f"clouds: {{one: {{auth: {{password: {sign}{SECRET}{end}", "line 1")
            for sign, end in (("!", " x}}}"), ("*", "}}}"))
        ),
        # Whatever the loader or its plug-ins make of it.
        *((f"clouds: {text}", "one") for text in ("{one: {auth: &x [*x]}}", "{one: &x {auth: {a: *x}}}")),
        (f"clouds: {{one: {{auth: {{auth_url: 'http://[', username: u, password: {SECRET}}}}}}}", "no project_name"),
        ("[" * 500, "clouds.yaml cannot be read"),
        (f"{BOMB}clouds: {{one: {{auth: {{auth_url: 'https://x'}}, x: *i}}}}", "more than 10000 values"),
    ],
)
def test_a_file_that_cannot_be_used(
    clouds_yaml: Path, caplog: pytest.LogCaptureFixture, content: str | None, wanted: str
) -> None:
    """G-8, G-9: a provider that starts has the problem; one that runs keeps its settings, and logs that."""
    write(clouds_yaml, {})
    clouds = Clouds()
    before = load(section(cloud="one"), clouds)[0]
    clouds_yaml.write_text(content or "", "utf-8")
    if content is None:
        clouds_yaml.unlink()
    clouds.forget()
    with pytest.raises(CloudProblem, match=wanted) as caught:
        Clouds().region("one", None)
    problem = Clouds().settings("one", None).problem
    assert problem == str(caught.value)
    assert SECRET not in problem
    assert "\n" not in problem
    again, config = load(section(cloud="one"), clouds)
    assert again == before
    assert str(clouds_yaml) in config.watched_files
    assert clouds.region("one", None).config["auth"]["password"] == SECRET
    assert caplog.text.count("Provider cloud-a keeps its earlier settings: ") == 1
    assert SECRET not in caplog.text


@pytest.mark.parametrize(
    "change",
    [
        {"auth": {"password": "new"}},
        {"force_ipv4": True},
        {"_file": {"client": {"force_ipv4": True}}},
        {"metrics": {"statsd": {"host": "127.0.0.1", "prefix": "b"}}},
        {"image_format": "raw"},
        {"_file": {"cache": {"expiration_time": 3600}}},
    ],
)
def test_reload(clouds_yaml: Path, change: Settings) -> None:
    """reference/driver 1, 6: after `reset` a change makes another provider; what makes no difference does not."""
    write(clouds_yaml, {})
    driver = OpenStackDriver()
    clouds = driver.getProviderConfig(section(cloud="one")).clouds
    before, region = clouds.settings("one", None), clouds.region("one", None)
    write(clouds_yaml, change)
    assert clouds.settings("one", None) == before
    driver.reset()
    changed = "cache" not in str(change)
    assert (clouds.settings("one", None) != before) is (clouds.renewed("one", None, region) is not None) is changed
    assert clouds.settings("one", None).image_format == change.get("image_format", "qcow2")


#: Keys that openstacksdk reads, and where their rows are. Of services: without the prefix.
TESTED = {
    "in the tables above": "additional_metric_tags api_timeout api_version cacert cache cert client "
    "concurrency default_microversion disable_vendor_agent endpoint endpoint_override floating_ip_source "
    "force_ipv4 image_api_use_tasks influxdb insecure interface key metrics networks prefer_ipv6 private "
    "rate_limit region_name regions requires_floating_ip service_name service_type timing "
    "use_external_network use_internal_network vendor_hook verify external_network internal_network profile "
    "auth auth_type clouds image_format statsd password username host port prefix",
    "given to keystoneauth's adapter by openstacksdk": "connect_retries connect_retry_delay retriable_status_codes "
    "status_code_retries status_code_retry_delay",
    "loader only: a method of a login, for its plug-in": "auth_methods",
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
    found = {name for file in files for names in read.findall(file.read_text("utf-8")) for name in names}
    known = {name for names in TESTED.values() for name in names.split()}
    assert found - {""} - known == set()


def test_what_follows() -> None:
    """reference/configuration 7: what comes from the pool, the top-level image, and clouds.yaml."""
    plain = {"name": "small", "diskimage": "fedora", "min-ram": 1}
    pool = {"networks": ["internal"], "host-key-checking": False, "max-volumes": 3}
    images = [{"name": "fedora", "config-drive": True}]
    config, whole = load(section(plain, pool=pool, diskimages=images), StubClouds(image_format="raw"))
    label, image = only_label(config), config.diskimages["fedora"]
    assert (label.networks, label.host_key_checking, label.config_drive) == (["internal"], False, True)
    assert (image.username, image.python_path, image.shell_type) == ("builder", "/py", "csh")
    assert (config.image_type, whole.diskimages["fedora"].image_types, config.uses_volumes) == ("raw", {"raw"}, True)
    other, _ = load(section(pool={"availability-zones": [""]}))
    assert (only_label(other).pool.azs, other.image_type, other.uses_volumes) == ([None], "qcow2", False)
    assert load(section(plain), StubClouds(auth={"password": "new"}))[0] != load(section(plain))[0]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"name": "small", "min-ram": 1}, "exactly one of"),
        (label_section(diskimage="fedora"), "exactly one of diskimage and cloud-image"),
        ({"name": "small", "cloud-image": "debian"}, "flavor-name or min-ram"),
        (label_section(**{"cloud-image": "nope"}), "no cloud-image 'nope'"),
        (label_section(userdata={"a": 1}), "expected str"),
        ({"cloud-images": [{"name": "debian", "image-id": "1", "image-name": "2"}]}, "only one of"),
        ({"cloud": ""}, "length"),
        ({"cloud": None}, "cloud"),
        ({"rate": -1}, "at least 0"),
        ({"launch-retries": 0}, "at least 1"),
        ({"unknown": 1}, "extra keys"),
    ],
)
def test_schema_refuses(change: dict[str, Any], text: str) -> None:
    """reference/configuration 7: what cannot work is refused when the file is read."""
    more = {"pools": [{"name": "p", "labels": [change]}]} if change.get("name") == "small" else change
    with pytest.raises(v.Invalid, match=text):
        load(section())[0].getSchema()({key: one for key, one in {**section(), **more}.items() if one is not None})


def test_sdk_is_not_imported() -> None:
    """Only a configured cloud costs the 40 MiB and the time that openstacksdk takes."""
    code = "import sys, nodepool.driver.openstack; print([m for m in sys.modules if m.startswith(('openst', 'keyst'))])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
