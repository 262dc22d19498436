# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.openstack.config` and ``schema`` (reference/configuration 7)."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import pytest
import voluptuous as v

from nodepool.config.validator import validate
from tests.unit.driver.openstack.support import StubClouds, label_section, load, only_label, section

EVERYTHING: dict[str, Any] = {
    "name": "cloud-a",
    "driver": "openstack",
    "max-concurrency": 5,
    "priority": 7,
    "cloud": "example",
    "region-name": "north",
    "rate": 0.25,
    "boot-timeout": 120,
    "launch-timeout": 1800,
    "launch-retries": 2,
    "image-upload-timeout": 100,
    "image-name-format": "ci-{image_name}-{upload_id}",
    "post-upload-hook": "/usr/bin/hook",
    "clean-floating-ips": True,
    "port-cleanup-interval": 0,
    "nodepool-id": "old",
    "diskimages": [
        {
            "name": "fedora",
            "pause": True,
            "config-drive": True,
            "meta": {"key": "value"},
            "connection-type": "winrm",
            "connection-port": 1234,
        }
    ],
    "cloud-images": [
        {"name": "debian", "config-drive": False, "image-id": "abc", "username": "root", "python-path": "/usr/bin/py"},
        {"name": "other", "image-name": "Other 12", "shell-type": "cmd", "connection-type": "winrm"},
        {"name": "plain"},
    ],
    "pools": [
        {
            "name": "main",
            "max-servers": 10,
            "max-cores": 20,
            "max-ram": 4096,
            "max-volumes": 3,
            "max-volume-gb": 300,
            "ignore-provider-quota": True,
            "availability-zones": ["az1"],
            "networks": ["internal"],
            "security-groups": ["default", "ci"],
            "auto-floating-ip": False,
            "host-key-checking": False,
            "node-attributes": {"a": 1},
            "priority": 3,
            "labels": [
                {
                    "name": "small",
                    "diskimage": "fedora",
                    "flavor-name": "m1",
                    "min-ram": 2048,
                    "key-name": "key",
                    "console-log": True,
                    "boot-from-volume": True,
                    "volume-size": 80,
                    "instance-properties": {"a": 1},
                    "dynamic-instance-properties": {"b": "{request.id}"},
                    "userdata": "#cloud-config",
                    "networks": ["other"],
                    "host-key-checking": True,
                },
                {"name": "big", "cloud-image": "other", "min-ram": 8192},
            ],
        }
    ],
}


def test_every_key() -> None:
    """reference/configuration 7: all keys are read."""
    config, whole = load(EVERYTHING, StubClouds(image_format="raw"))
    pool = config.pools["main"]
    small, big = pool.labels["small"], pool.labels["big"]
    assert (config.max_concurrency, config.priority, config.cloud, config.region_name) == (5, 7, "example", "north")
    assert (config.rate, config.boot_timeout, config.launch_timeout) == (0.25, 120, 1800)
    assert (config.launch_retries, config.image_upload_timeout, config.port_cleanup_interval) == (2, 100, 0)
    assert (config.image_name_format, config.post_upload_hook) == ("ci-{image_name}-{upload_id}", "/usr/bin/hook")
    assert (config.clean_floating_ips, config.uses_volumes, config.manage_images) == (True, True, True)
    assert (pool.max_servers, pool.max_cores, pool.max_ram, pool.max_volumes, pool.max_volume_gb) == (
        *(10, 20, 4096),
        *(3, 300),
    )
    assert (pool.ignore_provider_quota, pool.azs, pool.networks) == (True, ["az1"], ["internal"])
    assert (pool.security_groups, pool.auto_floating_ip, pool.host_key_checking) == (["default", "ci"], False, False)
    assert (pool.node_attributes, pool.priority) == ({"a": 1}, 3)
    assert (small.flavor_name, small.min_ram, small.key_name, small.console_log) == ("m1", 2048, "key", True)
    assert (small.boot_from_volume, small.volume_size, small.userdata) == (True, 80, "#cloud-config")
    assert (small.instance_properties, small.dynamic_instance_properties) == ({"a": 1}, {"b": "{request.id}"})
    assert (small.networks, small.host_key_checking, small.config_drive) == (["other"], True, True)
    assert (big.networks, big.host_key_checking, big.config_drive) == (["internal"], False, None)
    assert config.image_type == "raw"
    assert whole.diskimages["fedora"].image_types == {"raw"}
    assert [p.name for p in whole.labels["small"].pools] == ["main"]


def test_images() -> None:
    """reference/configuration 7: login data of uploaded images are the top-level image's, of cloud images their own."""
    config, _ = load(EVERYTHING)
    fedora = config.diskimages["fedora"]
    assert (fedora.pause, fedora.meta, fedora.connection_type, fedora.connection_port) == (
        *(True, {"key": "value"}),
        *("winrm", 1234),
    )
    assert (fedora.username, fedora.python_path, fedora.shell_type) == ("builder", "/py", "csh")
    debian, other, plain = (config.cloud_images[name] for name in ("debian", "other", "plain"))
    assert (debian.image_id, debian.username, debian.python_path, debian.config_drive) == (
        *("abc", "root"),
        *("/usr/bin/py", False),
    )
    assert (other.image_id, other.image_name, other.connection_port, other.shell_type) == (
        None,
        "Other 12",
        5986,
        "cmd",
    )
    assert (plain.image_id, plain.image_name, plain.username, plain.python_path) == (None, "plain", None, "auto")


def test_defaults() -> None:
    """reference/configuration 7: what an absent key means."""
    config, _ = load(section())
    pool, label = config.pools["main"], only_label(config)
    assert (config.rate, config.boot_timeout, config.launch_timeout, config.launch_retries) == (None, 60, 3600, 3)
    assert (config.image_upload_timeout, config.port_cleanup_interval, config.clean_floating_ips) == (3600, 600, False)
    assert (config.image_name_format, config.post_upload_hook) == ("{image_name}-{timestamp}", None)
    assert (config.image_type, config.region_name, config.uses_volumes) == ("qcow2", None, False)
    assert (pool.max_servers, pool.max_cores, pool.max_ram, pool.max_volumes) == (math.inf, None, None, None)
    assert (pool.azs, pool.networks, pool.security_groups) == (None, [], [])
    assert (pool.auto_floating_ip, pool.host_key_checking, pool.ignore_provider_quota) == (True, True, False)
    assert (label.min_ram, label.key_name, label.console_log, label.boot_from_volume) == (0, None, False, False)
    assert (label.volume_size, label.networks, label.host_key_checking, label.userdata) == (50, [], True, None)


def test_equality() -> None:
    """reference/driver 6: a reload of the same file finds no difference; every change is one."""
    first, second = load(EVERYTHING)[0], load(EVERYTHING)[0]
    assert first == second
    for change in ("rate", "boot-timeout", "image-name-format"):
        data = copy.deepcopy(EVERYTHING)
        data[change] = 99 if change != "image-name-format" else "x"
        assert load(data)[0] != first, change
    data = copy.deepcopy(EVERYTHING)
    data["pools"][0]["labels"][0]["userdata"] = "other"
    assert load(data)[0] != first
    assert load(EVERYTHING, StubClouds(auth={"password": "new"}))[0] != first, "a change of clouds.yaml"


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"pools": [{"name": "p", "labels": [{"name": "small", "min-ram": 1}]}]}, "exactly one of"),
        (
            {"pools": [{"name": "p", "labels": [label_section(diskimage="fedora")]}]},
            "exactly one of diskimage and cloud-image",
        ),
        ({"pools": [{"name": "p", "labels": [{"name": "small", "cloud-image": "debian"}]}]}, "flavor-name or min-ram"),
        ({"pools": [{"name": "p", "labels": [label_section(**{"cloud-image": "nope"})]}]}, "no cloud-image 'nope'"),
        ({"cloud-images": [{"name": "debian", "image-id": "1", "image-name": "2"}]}, "only one of"),
        ({"cloud": ""}, "length"),
        ({"rate": -1}, "at least 0"),
        ({"launch-retries": 0}, "at least 1"),
        ({"unknown": 1}, "extra keys"),
    ],
)
def test_schema_refuses(change: dict[str, Any], text: str) -> None:
    """reference/configuration 7: what cannot work is said when the file is read."""
    config, _ = load(section())
    with pytest.raises(v.Invalid, match=text):
        config.getSchema()({**section(), **change})


def test_cloud_is_required() -> None:
    data = section()
    del data["cloud"]
    with pytest.raises(v.Invalid, match="cloud"):
        load(section())[0].getSchema()(data)


def test_validator_names_file_and_line(tmp_path: Path) -> None:
    """reference/configuration 11: the checks of OpenStack sections are made by config-validate, with the place."""
    file = tmp_path / "nodepool.yaml"
    file.write_text(
        "zookeeper-servers: [{host: zk}]\nzookeeper-tls: {cert: c, key: k, ca: a}\nlabels: [{name: small}]\n"
        "diskimages: [{name: fedora}]\nproviders:\n- name: a\n  driver: openstack\n  cloud: c\n"
        "  diskimages: [{name: missing}]\n  pools:\n  - name: p\n    labels:\n"
        "    - {name: tiny, diskimage: gone, min-ram: 1}\n    - {name: small, diskimage: fedora, min-ram: 1}\n",
        encoding="utf-8",
    )
    found = {(problem.line, problem.message.split(";")[0]) for problem in validate(str(file))}
    assert (9, "the diskimage 'missing' is not defined") in found
    assert (13, "the label 'tiny' is not defined") in found
    assert (13, "the diskimage 'gone' is not defined") in found
    assert (14, "the provider has no diskimage 'fedora'") in found
