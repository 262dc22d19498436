# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.openstack.clouds`: clouds.yaml as openstacksdk's loader reads it."""

from __future__ import annotations

from pathlib import Path

# The loader looks into what was the working directory when it was imported: that of pytest, for all tests.
import openstack.config.loader  # noqa: F401
import pytest

from nodepool.config.loader import load_config
from nodepool.driver.openstack import OpenStackDriver
from nodepool.driver.openstack.clouds import CloudProblem, Clouds
from nodepool.driver.openstack.config import OpenStackProviderConfig

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
    """config.md 7: region-name chooses; without it the first region of the file counts."""
    write(file, "one", "two", more="    image_format: raw\n")
    clouds = Clouds()
    assert clouds.region("one", None).region_name == "north"
    assert clouds.region("one", "south").region_name == "south"
    assert clouds.settings("one", None).image_format == "qcow2"
    assert clouds.settings("two", None).image_format == "raw"


def test_read_again_after_reset(file: Path) -> None:
    """driver-api 1: reset() drops what was read; a changed password is a changed provider."""
    write(file, "one")
    driver = OpenStackDriver()
    clouds = driver._clouds
    before = clouds.settings("one", None)
    write(file, "one", password="new")
    assert clouds.settings("one", None) == before
    driver.reset()
    assert clouds.settings("one", None) != before
    assert "secret" not in repr(before)


@pytest.mark.parametrize(
    ("content", "wanted"),
    [
        (None, ["no clouds.yaml", "OS_CLIENT_CONFIG_FILE"]),
        ("clouds: [", ["cannot be read", "correct the file"]),
        ("clouds:\n  other: {}\n", ["no cloud 'one'", "other", "add it"]),
        ("clouds:\n  one:\n    auth: {}\n", ["cannot be used", "correct it"]),
        ("clouds:\n  one: 7\n", ["one"]),
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
