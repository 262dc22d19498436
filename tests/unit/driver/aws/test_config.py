# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.aws.config`, ``image_config`` and ``config_checks`` (reference/configuration)."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodepool.config.objects import Config, DiskImage, Label
from nodepool.config.validator import validate
from nodepool.driver.aws import AwsDriver
from nodepool.driver.aws.config import AwsProviderConfig
from tests.unit.driver.aws.support import load as load_section
from tests.unit.driver.aws.support import section

EVERYTHING: dict[str, Any] = {
    "name": "north",
    "driver": "aws",
    "max-concurrency": 5,
    "priority": 7,
    "region-name": "eu-north-1",
    "profile-name": "ci",
    "rate": 4,
    "boot-timeout": 200,
    "launch-timeout": 1800,
    "launch-retries": 2,
    "max-servers": 50,
    "max-cores": 100,
    "max-ram": 200000,
    "max-resources": {"L-1216C47A": 64, "L-34B43A08": 32},
    "object-storage": {"bucket-name": "images"},
    "image-format": "vmdk",
    "image-import-timeout": 600,
    "post-upload-hook": "/usr/bin/hook",
    "use-internal-ip": True,
    "host-key-checking": False,
    "public-ipv4": False,
    "public-ipv6": True,
    "diskimages": [
        {
            "name": "fedora",
            "pause": True,
            "username": "core",
            "architecture": "arm64",
            "ena-support": False,
            "volume-size": 40,
            "volume-type": "io2",
            "import-method": "ebs-direct",
            "imds-support": "v2.0",
            "iops": 1000,
            "throughput": 200,
            "tags": {"release": 40},
            "connection-type": "winrm",
            "python-path": "/py",
            "shell-type": "cmd",
        },
        {"name": "windows"},
    ],
    "cloud-images": [
        {"name": "debian", "image-id": "ami-1", "username": "admin", "connection-port": 2222},
        {
            "name": "newest",
            "username": "root",
            "image-filters": [
                {"name": "name", "values": ["debian-*"]},
                {"Name": "architecture", "Values": ["x86_64", "arm64"]},
            ],
        },
    ],
    "pools": [
        {
            "name": "main",
            "max-servers": 10,
            "max-cores": 20,
            "max-ram": 4096,
            "max-resources": {"L-1216C47A": 8},
            "availability-zone": "eu-north-1a",
            "subnet-id": "subnet-1",
            "security-group-id": "sg-1",
            "public-ipv4": True,
            "public-ipv6": False,
            "use-internal-ip": False,
            "host-key-checking": True,
            "node-attributes": {"a": 1},
            "priority": 3,
            "labels": [
                {
                    "name": "small",
                    "diskimage": "fedora",
                    "key-name": "zuul",
                    "instance-type": "t3.medium",
                    "ebs-optimized": True,
                    "volume-type": "gp3",
                    "volume-size": 80,
                    "iops": 4000,
                    "throughput": 250,
                    "userdata": "#cloud-config",
                    "iam-instance-profile": {"arn": "arn:aws:iam::1:instance-profile/x"},
                    "tags": {"team": "ci", "year": 2026},
                    "dynamic-tags": {"tenant": "{request.tenant_name}"},
                    "imdsv2": "required",
                    "dedicated-host": True,
                },
                {
                    "name": "fleet",
                    "cloud-image": "newest",
                    "key-name": "zuul",
                    "fleet": {"instance-types": ["t3.medium", "t3a.medium"], "allocation-strategy": "prioritized"},
                    "iam-instance-profile": {"name": "x"},
                    "use-spot": True,
                    "host-key-checking": False,
                },
            ],
        },
        {"name": "other", "public-ipv4": False, "public-ip-address": True},
    ],
}


def load(data: dict[str, Any]) -> tuple[AwsProviderConfig, Config]:
    """Load a section in a configuration that has its labels and images."""
    whole = Config()
    for image in data.get("diskimages", []):
        whole.diskimages[image["name"]] = DiskImage(image["name"])
        whole.diskimages[image["name"]].username = "builder"
        whole.diskimages[image["name"]].python_path = "/top"
    for pool in data["pools"]:
        for label in pool.get("labels", []):
            whole.labels[label["name"]] = Label(label["name"])
    made = AwsDriver().getProviderConfig(data)
    made.getSchema()(data)
    made.load(whole)
    return made, whole


def test_every_key_of_a_provider() -> None:
    """reference/configuration: all keys are read."""
    config, whole = load(EVERYTHING)
    assert (config.max_concurrency, config.priority, config.region_name, config.profile_name) == (
        *(5, 7),
        *("eu-north-1", "ci"),
    )
    assert (config.rate, config.boot_timeout, config.launch_timeout, config.launch_retries) == (4, 200, 1800, 2)
    assert (config.max_servers, config.max_cores, config.max_ram) == (50, 100, 200000)
    assert (config.bucket_name, config.image_type, config.image_import_timeout) == ("images", "vmdk", 600)
    assert config.post_upload_hook == "/usr/bin/hook"
    assert config.manage_images
    assert whole.diskimages["fedora"].image_types == {"vmdk"}
    assert [pool.name for pool in whole.labels["small"].pools] == ["main"]


def test_every_key_of_a_pool() -> None:
    """reference/configuration: all keys are read; what a pool does not say is the provider's."""
    config, _ = load(EVERYTHING)
    main, other = config.pools["main"], config.pools["other"]
    assert (main.max_servers, main.max_cores, main.max_ram) == (10, 20, 4096)
    assert main.max_resources == {"L-1216C47A": 8, "L-34B43A08": 32}
    assert (main.availability_zones, main.subnet_ids) == (["eu-north-1a"], ["subnet-1"])
    assert main.security_group_id == "sg-1"
    assert (main.public_ipv4, main.public_ipv6, main.use_internal_ip) == (True, False, False)
    assert (main.host_key_checking, main.node_attributes, main.priority) == (True, {"a": 1}, 3)
    assert (other.max_servers, other.max_cores, other.max_ram, other.priority) == (50, 100, 200000, 7)
    assert other.max_resources == config.max_resources == {"L-1216C47A": 64, "L-34B43A08": 32}
    assert (other.public_ipv6, other.use_internal_ip, other.host_key_checking) == (True, True, False)
    assert other.public_ipv4, "the old name wins"
    assert (other.availability_zones, other.subnet_ids, other.security_group_id) == ([], [], None)


def test_every_key_of_a_label() -> None:
    """reference/configuration: all keys are read."""
    config, _ = load(EVERYTHING)
    small, fleet = config.pools["main"].labels["small"], config.pools["main"].labels["fleet"]
    assert small.diskimage is config.diskimages["fedora"]
    assert (small.key_name, small.instance_types, small.fleet_types) == ("zuul", ["t3.medium"], None)
    assert (small.ebs_optimized, small.volume_type, small.volume_size) == (True, "gp3", 80)
    assert (small.iops, small.throughput, small.userdata) == (4000, 250, "#cloud-config")
    assert (small.profile_name, small.profile_arn) == (None, "arn:aws:iam::1:instance-profile/x")
    assert small.tags == {"team": "ci", "year": "2026"}
    assert small.dynamic_tags == {"tenant": "{request.tenant_name}"}
    assert (small.imdsv2, small.dedicated_host, small.use_spot) == ("required", True, False)
    assert small.host_key_checking, "that of the pool"
    assert fleet.cloud_image is config.cloud_images["newest"]
    assert (fleet.instance_types, fleet.fleet_types) == ([], ["t3.medium", "t3a.medium"])
    assert (fleet.fleet_strategy, fleet.profile_name, fleet.use_spot) == ("prioritized", "x", True)
    assert (fleet.tags, fleet.dynamic_tags, fleet.imdsv2, fleet.host_key_checking) == ({}, {}, None, False)


def test_images() -> None:
    """reference/configuration: how to log in to an uploaded image stands in the provider; its user may."""
    config, _ = load(EVERYTHING)
    fedora, windows = config.diskimages["fedora"], config.diskimages["windows"]
    assert (fedora.pause, fedora.username, fedora.architecture, fedora.ena_support) == (True, "core", "arm64", False)
    assert (fedora.volume_size, fedora.volume_type, fedora.iops, fedora.throughput) == (40, "io2", 1000, 200)
    assert (fedora.import_method, fedora.imds_support, fedora.tags) == ("ebs-direct", "v2.0", {"release": 40})
    assert (fedora.connection_type, fedora.connection_port) == ("winrm", 5986)
    assert (fedora.python_path, fedora.shell_type) == ("/py", "cmd")
    assert (windows.username, windows.python_path, windows.import_method) == ("builder", "auto", "snapshot")
    assert (windows.volume_type, windows.volume_size, windows.architecture) == ("gp3", None, "x86_64")
    debian, newest = config.cloud_images["debian"], config.cloud_images["newest"]
    assert (debian.image_id, debian.image_filters, debian.connection_port) == ("ami-1", [], 2222)
    assert [(found.name, found.values) for found in newest.image_filters] == [
        ("name", ["debian-*"]),
        ("architecture", ["x86_64", "arm64"]),
    ]


@pytest.mark.parametrize(
    ("method", "image_format", "words"),
    [
        ("ebs-direct", "raw", ""),
        ("ebs-direct", "vmdk", "must be raw, not vmdk"),
        ("snapshot", "vmdk", ""),
        ("snapshot", "ova", "makes no snapshot of a file of format ova"),
        ("image", "ova", ""),
    ],
)
def test_format_that_cannot_be_uploaded(method: str, image_format: str, words: str) -> None:
    """AW-17, AW-18: config-validate says it; Nodepool 11 accepts such a section. A paused image is no matter."""
    images = [{"name": "fedora", "import-method": method}, {"name": "old", "import-method": method, "pause": True}]
    storage = {"bucket-name": "images"}
    more: dict[str, Any] = {"diskimages": images, "image-format": image_format, "object-storage": storage}
    found = list(load_section(section(**more)).localProblems())
    assert [key for key, _ in found] == (["image-format"] if words else [])
    assert all(words in text and "fedora" in text for _, text in found)


def test_lists_in_order() -> None:
    """reference/configuration: subnets or zones, and types, may be lists."""
    data = copy.deepcopy(EVERYTHING)
    pool = data["pools"][0]
    del pool["availability-zone"], pool["labels"][0]["dedicated-host"]
    pool["subnet-id"] = ["subnet-2", "subnet-1"]
    pool["labels"][0] |= {"instance-type": ["t3.medium", "t3a.medium"], "use-spot": True, "spot-fallback": True}
    main = load(data)[0].pools["main"]
    assert (main.subnet_ids, main.availability_zones) == (["subnet-2", "subnet-1"], [])
    assert main.labels["small"].instance_types == ["t3.medium", "t3a.medium"]
    assert main.labels["small"].spot_fallback


def test_defaults() -> None:
    """reference/configuration: those of Nodepool 11.0.0."""
    config, _ = load({"name": "north", "driver": "aws", "region-name": "r", "pools": [{"name": "main"}]})
    pool = config.pools["main"]
    assert (config.rate, config.boot_timeout, config.launch_timeout, config.launch_retries) == (2, 180, 3600, 3)
    assert (config.image_type, config.image_name_format) == ("raw", "{image_name}-{timestamp}")
    assert (config.image_import_timeout, config.profile_name, config.bucket_name) == (None, None, None)
    assert (pool.max_servers, pool.max_cores, pool.max_ram, pool.max_resources) == (math.inf, None, None, {})
    assert (pool.public_ipv4, pool.public_ipv6, pool.use_internal_ip, pool.host_key_checking) == (
        *(True, False),
        *(False, True),
    )


def test_equal_when_loaded_twice() -> None:
    """6: a reload leaves a provider alone whose section has not changed."""
    first, second = load(copy.deepcopy(EVERYTHING))[0], load(copy.deepcopy(EVERYTHING))[0]
    assert first == second
    changed = copy.deepcopy(EVERYTHING)
    changed["cloud-images"][1]["image-filters"][0]["values"] = ["debian-13-*"]
    assert first != load(changed)[0]


# -- what is wrong --


def written(data: dict[str, Any]) -> str:
    """A whole configuration with the section, one key or entry a line."""
    names = [label["name"] for pool in data["pools"] for label in pool.get("labels", [])]
    whole = {
        "zookeeper-servers": [{"host": "zk"}],
        "zookeeper-tls": {"cert": "c", "key": "k", "ca": "a"},
        "labels": [{"name": name} for name in names],
        "diskimages": [{"name": image["name"]} for image in data.get("diskimages", [])],
        "providers": [data],
    }
    return yaml.safe_dump(whole, sort_keys=False)


def problems(tmp_path: Path, data: dict[str, Any]) -> list[str]:
    """What ``config-validate`` says of the section: ``key: text``; each with file and line."""
    file = tmp_path / "nodepool.yaml"
    file.write_text(written(data), encoding="utf-8")
    found = validate(str(file))
    assert all(str(problem).startswith(f"{file}:") for problem in found)
    return [str(problem).split(": ", 1)[1] for problem in found]


def test_released_configuration_is_accepted(tmp_path: Path) -> None:
    """reference/configuration: with every key that 11.0.0 takes."""
    assert problems(tmp_path, EVERYTHING) == []


def _label(data: dict[str, Any], index: int = 0) -> dict[str, Any]:
    label: dict[str, Any] = data["pools"][0]["labels"][index]
    return label


@pytest.mark.parametrize(
    ("change", "key", "text"),
    [
        (lambda d: d.pop("region-name"), "region-name", "required"),
        (lambda d: d.update(rate="fast"), "rate", "number"),
        (lambda d: d.update({"image-format": "qcow2"}), "image-format", "raw"),
        (lambda d: d.update({"max-resources": {"L-1": "many"}}), "max-resources.L-1", "whole number"),
        (lambda d: d.update({"image-name-format": "x"}), "image-name-format", "unknown"),
        (lambda d: d.pop("object-storage"), "diskimages[1]", "object-storage.bucket-name"),
        (lambda d: d["cloud-images"][0].pop("username"), "cloud-images[0].username", "required"),
        (lambda d: d["cloud-images"][0].pop("image-id"), "cloud-images[0]", "image-id and image-filters"),
        (lambda d: d["cloud-images"][1].update({"image-id": "ami-2"}), "cloud-images[1]", "image-id and image-filters"),
        (lambda d: d["cloud-images"][1]["image-filters"][0].pop("name"), "image-filters[0]", "name is needed"),
        (lambda d: d["cloud-images"][1]["image-filters"][1].pop("Values"), "image-filters[1]", "values is needed"),
        (lambda d: d["diskimages"][0].update({"import-method": "magic"}), "diskimages[0].import-method", "ebs-direct"),
        (lambda d: d["diskimages"][0].update({"import-method": "image"}), "diskimages[0].imds-support", "snapshot"),
        (lambda d: d["pools"][0].pop("availability-zone"), "labels[0].dedicated-host", "availability-zone"),
        (lambda d: d["pools"][0].update({"subnet-id": ["a", "b"]}), "pools[0].availability-zone", "in one zone"),
        (lambda d: _label(d).update({"instance-type": [""]}), "labels[0].instance-type[0]", "text"),
        (lambda d: _label(d).update({"instance-type": []}), "labels[0].instance-type", "a type is needed"),
        (lambda d: _label(d).update({"use-spot": True}), "labels[0].use-spot", "dedicated host"),
        (lambda d: _label(d, 1).update({"dedicated-host": True, "use-spot": False}), "labels[1].fleet", "dedicated"),
        (lambda d: _label(d).pop("key-name"), "labels[0].key-name", "required"),
        (lambda d: _label(d).pop("instance-type"), "labels[0]", "instance-type and fleet"),
        (lambda d: _label(d, 1).update({"instance-type": "t3.nano"}), "labels[1]", "instance-type and fleet"),
        (lambda d: _label(d, 1)["fleet"].pop("instance-types"), "fleet.instance-types", "required"),
        (lambda d: _label(d, 1)["fleet"].update({"allocation-strategy": "any"}), "allocation-strategy", "prioritized"),
        (lambda d: _label(d)["iam-instance-profile"].update(name="x"), "iam-instance-profile.arn", "only one"),
        (lambda d: _label(d).update(imdsv2="v2"), "labels[0].imdsv2", "optional"),
        (lambda d: _label(d).update({"cloud-image": "debian"}), "labels[0]", "diskimage and cloud-image"),
        (lambda d: _label(d, 1).update({"cloud-image": "no"}), "labels[1].cloud-image", "'no'"),
        (lambda d: _label(d).update({"volume-size": 0}), "labels[0].volume-size", "1 or more"),
        (lambda d: _label(d).update({"instance-typ": "x"}), "labels[0].instance-typ", "unknown"),
    ],
)
def test_what_is_wrong(tmp_path: Path, change: Any, key: str, text: str) -> None:
    """reference/configuration: refused with file, line, key and what is allowed."""
    data = copy.deepcopy(EVERYTHING)
    change(data)
    found = problems(tmp_path, data)
    assert len(found) == 1
    where, _, said = found[0].partition(": ")
    assert where.endswith(key)
    assert text in said
