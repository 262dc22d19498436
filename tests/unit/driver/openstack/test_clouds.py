# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.openstack.clouds`: clouds.yaml as openstacksdk's loader reads it."""

from __future__ import annotations

import errno
import logging
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

# The loader looks into what was the working directory when it was imported: that of pytest, for all tests.
import openstack.config.loader  # noqa: F401
import pytest
import yaml

from nodepool.config.loader import load_config
from nodepool.driver.openstack import OpenStackDriver
from nodepool.driver.openstack.clouds import CloudProblem, Clouds, host_has_ipv6, settings_of, statsd_of
from nodepool.driver.openstack.config import OpenStackProviderConfig
from nodepool.driver.openstack.instance import CloudNetworks
from tests.unit.driver.openstack.support import load, section

ENTRY = (
    "  {name}:\n    auth: {{auth_url: 'http://127.0.0.1:1/v3', username: u, password: {password}, project_name: p}}\n"
    "    regions: [north, south]\n"
)


def write(path: Path, *names: str, password: str = "secret", more: str = "") -> None:
    text = "".join(ENTRY.format(name=name, password=password) for name in names)
    path.write_text(f"clouds:\n{text}{more}", encoding="utf-8")


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "clouds.yaml"
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(path))
    return path


def test_cloud_and_region(file: Path) -> None:
    """reference/configuration 7: region-name chooses; without it the first region of the file counts."""
    write(file, "one", "two", more="    image_format: raw\n")
    clouds = Clouds()
    assert clouds.region("one", None).region_name == "north"
    assert clouds.region("one", "south").region_name == "south"
    assert clouds.settings("one", None).image_format == "qcow2"
    assert clouds.settings("two", None).image_format == "raw"


def test_read_again_after_reset(file: Path) -> None:
    """reference/driver 1: reset() drops what was read; a changed password is a changed provider."""
    write(file, "one")
    driver = OpenStackDriver()
    clouds = driver._clouds
    before = clouds.settings("one", None)
    write(file, "one", password="new")
    assert clouds.settings("one", None) == before
    driver.reset()
    assert clouds.settings("one", None) != before
    assert "secret" not in repr(before)


def test_address_family(file: Path) -> None:
    """O-12: ``force_ipv4``, which openstacksdk takes out of its settings; a change of it is a changed provider."""
    write(file, "one")
    clouds = Clouds()
    before = clouds.settings("one", None)
    region = clouds.region("one", None)
    assert not CloudNetworks.of(settings_of(region)).only_v4
    for text, wanted in (("    force_ipv4: true\n", True), ("client:\n  force_ipv4: true\n", True), ("", False)):
        write(file, "one", more=text)
        clouds.forget()
        assert CloudNetworks.of(settings_of(clouds.region("one", None))).only_v4 is wanted
        assert (clouds.settings("one", None) != before) is wanted
        assert (clouds.renewed("one", None, region) is not None) is wanted


@pytest.mark.parametrize(
    ("address", "found"),
    [("fd00::2", True), ("2001:db8::2", True), ("fe80::2", False), ("::1", False), ("10.0.0.2", False)],
)
def test_ipv6_of_the_host(monkeypatch: pytest.MonkeyPatch, address: str, found: bool) -> None:
    """O-12: as openstacksdk tells it."""
    pytest.importorskip("psutil", reason="openstacksdk 3 asks another library")
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    interface = SimpleNamespace(family=family, address=address)
    monkeypatch.setattr("psutil.net_if_addrs", lambda: {"eth0": [interface]})
    assert host_has_ipv6() is found


def test_ipv6_in_a_sandbox(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """O-12: a provider starts also where the addresses of the host cannot be read."""

    def refuse() -> None:
        raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")

    pytest.importorskip("psutil", reason="openstacksdk 3 asks another library")
    monkeypatch.setattr("psutil.net_if_addrs", refuse)
    caplog.set_level(logging.INFO)
    assert host_has_ipv6() is False
    assert "Addresses of this host are not known, so nodes are reached by IPv4: " in caplog.text


@pytest.mark.parametrize(
    ("content", "wanted"),
    [
        (None, ["no clouds.yaml", "OS_CLIENT_CONFIG_FILE"]),
        ("clouds: [", ["cannot be read", "correct the file"]),
        ("clouds:\n  other: {}\n", ["no cloud 'one'", "other", "add it"]),
        ("clouds:\n  one:\n    auth: {}\n", ["cannot be used", "correct it"]),
        ("clouds:\n  one: 7\n", ["cloud 'one' in", "must be a mapping"]),
        ("clouds:\n  one: {auth: [7]}\n", ["cloud 'one' in", "so must its auth"]),
        ("clouds:\n  one: {auth: }\n", ["cloud 'one' in"]),
        ("7", ["cannot be read", "correct the file"]),
        ("", ["one"]),
        ("clouds:\n  one:\n    auth_type: nosuch\n    auth: {}\n", ["cannot be used"]),
    ],
)
def test_problems_name_the_remedy(file: Path, content: str | None, wanted: list[str]) -> None:
    """Bad input: missing or broken clouds.yaml, unknown cloud, incomplete login."""
    if content is not None:
        file.write_text(content, encoding="utf-8")
    settings = Clouds().settings("one", None)
    with pytest.raises(CloudProblem) as caught:
        Clouds().region("one", None)
    for text in wanted:
        assert text in str(caught.value)
    assert settings.problem == str(caught.value)
    assert "\n" not in settings.problem


def test_unknown_region(file: Path) -> None:
    write(file, "one")
    with pytest.raises(CloudProblem, match="west"):
        Clouds().region("one", "west")


def test_a_broken_file_shows_no_password(file: Path) -> None:
    """Errors of the YAML parser quote the line; that line may be the one with the password."""
    file.write_text("clouds:\n  one:\n    password: hunter2: x\n", encoding="utf-8")
    assert "hunter2" not in Clouds().settings("one", None).problem
    assert "line 3" in Clouds().settings("one", None).problem


def test_only_that_provider_is_affected(file: Path, tmp_path: Path) -> None:
    """G-9: the file stays valid; the provider cannot be started until clouds.yaml is there, without a reload."""
    config = tmp_path / "nodepool.yaml"
    config.write_text(
        "zookeeper-servers: [{host: zk}]\nzookeeper-tls: {cert: c, key: k, ca: a}\nlabels: [{name: small}]\n"
        "providers:\n- {name: a, driver: openstack, cloud: one, cloud-images: [{name: i}],"
        " pools: [{name: p, labels: [{name: small, cloud-image: i, min-ram: 1}]}]}\n",
        encoding="utf-8",
    )
    provider = load_config(str(config)).providers["a"]
    assert isinstance(provider, OpenStackProviderConfig)
    driver = OpenStackDriver()
    with pytest.raises(CloudProblem, match="there is no clouds"):
        driver.getProvider(provider)
    write(file, "one")
    made = driver.getProvider(provider)
    made.stop()
    made.join()


def test_a_file_that_breaks_changes_nothing(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    """G-8, of clouds.yaml: a provider that runs goes on with what the file said before, and that is told."""
    write(file, "one")
    driver = OpenStackDriver()
    before = load(section(cloud="one"), driver._clouds)[0]
    for broken in ("clouds: [", "clouds:\n  other: {}\n", "clouds:\n  one: {auth: {}}\n"):
        file.write_text(broken, encoding="utf-8")
        driver.reset()
        again, config = load(section(cloud="one", rate=7), driver._clouds)
        assert again.cloud_settings == before.cloud_settings
        assert str(file) in config.watched_files
        assert driver._clouds.region("one", None).config["auth"]["password"] == "secret"
    assert caplog.text.count("Provider cloud-a keeps its earlier settings: ") == 3
    assert "secret" not in caplog.text
    write(file, "one", password="new")
    driver.reset()
    assert load(section(cloud="one"), driver._clouds)[0] != before


STATSD_SETTINGS: list[dict[str, Any]] = [
    {},
    {"host": "127.0.0.2"},
    {"port": 8126},
    {"prefix": "nodepool.task.north"},
    {"host": "127.0.0.3", "port": "8127", "prefix": "a.b"},
]


@pytest.mark.parametrize("general", STATSD_SETTINGS)
@pytest.mark.parametrize("own", STATSD_SETTINGS)
@pytest.mark.parametrize("environ", [{}, {"HOST": "127.0.0.4", "PORT": "8128"}, {"PREFIX": "of.environment"}])
def test_metrics_of_calls(
    file: Path, monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], own: dict[str, Any], general: dict[str, Any]
) -> None:
    """``metrics.statsd`` of the cloud, the environment, ``metrics.statsd`` of the file: as openstacksdk puts them."""
    for name, value in environ.items():
        monkeypatch.setenv(f"STATSD_{name}", value)
    auth = {"auth_url": "https://127.0.0.1:1/v3", "username": "u", "password": "secret", "project_name": "p"}
    clouds = {"one": {"auth": auth, "metrics": {"statsd": own}}}
    file.write_text(yaml.safe_dump({"clouds": clouds, "metrics": {"statsd": general}}), encoding="utf-8")
    region = Clouds().region("one", None)
    found, sdk = statsd_of(region), region.get_statsd_client()
    assert (found is None) == (sdk is None)
    if found is not None and sdk is not None:
        sdk.close()
        assert ((found.host.replace("localhost", "127.0.0.1"), found.port), found.prefix) == (
            sdk._addr,
            region.get_statsd_prefix(),
        )


def test_metrics_are_settings(file: Path) -> None:
    """A provider whose prefix changes is another one."""
    write(file, "one", more="metrics: {statsd: {host: 127.0.0.1, prefix: a}}\n")
    clouds = Clouds()
    before = clouds.settings("one", None)
    write(file, "one", more="metrics: {statsd: {host: 127.0.0.1, prefix: b}}\n")
    clouds.forget()
    assert clouds.settings("one", None) != before


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        ({"password": None}, "auth has no password; add it"),
        ({"username": None}, "auth has no username; add it"),
        ({"auth_url": None}, "auth"),
        ({"auth_url": "hello"}, "auth_url must begin with http:// or https://, not 'hello'"),
        ({"project_name": None}, "auth has no project_name; add it"),
        ({"api_timeout": "soon"}, "api_timeout must be a number of seconds, not 'soon'"),
        ({"cacert": "/no/such/file"}, "cacert: there is no file /no/such/file"),
        ({"cert": "/no/cert", "key": "/no/key"}, "cert or key: there is no file /no/cert"),
    ],
)
def test_settings_that_cannot_work(file: Path, change: dict[str, Any], wanted: str) -> None:
    """Bad input: what is missing is named when the provider is started, not an hour later by each call."""
    auth = {"auth_url": "https://127.0.0.1:1/v3", "username": "u", "password": "secret", "project_name": "p"}
    entry: dict[str, Any] = {"auth": auth}
    for key, value in change.items():
        target = auth if key in auth else entry
        target[key] = value
        if value is None:
            del target[key]
    file.write_text(yaml.safe_dump({"clouds": {"one": entry}}), encoding="utf-8")
    with pytest.raises(CloudProblem) as caught:
        Clouds().region("one", None)
    assert str(caught.value).startswith(f"cloud 'one' in {file} cannot be used: ")
    assert wanted in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "entry",
    [
        {
            "auth_type": "v3applicationcredential",
            "auth": {"application_credential_id": "i", "application_credential_secret": "s"},
        },
        {"auth_type": "v3token", "auth": {"token": "t", "project_id": "p"}},
        {"auth": {"user_id": "u", "password": "p", "project_id": "p"}},
        {"auth": {"username": "u", "password": "p", "system_scope": "all"}, "api_timeout": "30", "verify": False},
    ],
)
def test_other_ways_to_log_in(file: Path, entry: dict[str, Any]) -> None:
    """What openstacksdk can use is not refused."""
    entry["auth"]["auth_url"] = "http://127.0.0.1:1/v3"
    file.write_text(yaml.safe_dump({"clouds": {"one": entry}}), encoding="utf-8")
    assert Clouds().settings("one", None).problem == ""
