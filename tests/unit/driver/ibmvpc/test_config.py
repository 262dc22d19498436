# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.ibmvpc.config`, ``image_config`` and ``config_checks`` (reference/configuration)."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import pytest

from tests.support.provider_sections import problems_of_section
from tests.unit.driver.ibmvpc.support import label_of, load, section

STORAGE = {"instance-name": "cos", "endpoint": "https://s3.example.org", "bucket-name": "images"}

EVERYTHING: dict[str, Any] = {
    "name": "south",
    "driver": "ibmvpc",
    "max-concurrency": 5,
    "priority": 7,
    "vpc": "ci",
    "region": "us-south",
    "zone": ["us-south-1", "us-south-2"],
    "subnet": ["nodes-1", "nodes-2"],
    "credentials-file": "/etc/nodepool/ibm.env",
    "quota": {"instances": 20, "cores": 40, "ram": 160},
    "public-ipv4": True,
    "floating-ip-pool": 3,
    "use-internal-ip": True,
    "host-key-checking": False,
    "rate": 0.5,
    "boot-timeout": 200,
    "launch-timeout": 1800,
    "launch-retries": 2,
    "object-storage": STORAGE,
    "image-format": "vhd",
    "post-upload-hook": "/usr/bin/hook",
    "diskimages": [
        {
            "name": "fedora",
            "pause": True,
            "operating-system": "fedora-40-amd64",
            "connection-type": "winrm",
            "python-path": "/py",
            "shell-type": "cmd",
        },
        {"name": "debian", "operating-system": "debian-12-amd64"},
    ],
    "cloud-images": [
        {"name": "href", "username": "root", "image-href": "https://us-south.example.org/v1/images/i"},
        {"name": "id", "username": "root", "image-id": "r006-1", "keys": ["zuul", "admin"], "connection-port": 2222},
        {"name": "name", "username": "root", "image-name": "ibm-debian-12"},
        {
            "name": "filter",
            "username": "root",
            "image-filter": {
                "operating-system": {"family": "Debian", "version": 12, "dedicated-host-only": False},
                "owner-type": "provider",
                "status": "available",
            },
        },
    ],
    "pools": [
        {
            "name": "main",
            "max-servers": 10,
            "zone": "us-south-3",
            "subnet": "nodes-3",
            "public-ipv4": False,
            "floating-ip-pool": 0,
            "use-internal-ip": False,
            "host-key-checking": True,
            "node-attributes": {"a": 1},
            "priority": 3,
            "labels": [
                {"name": "small", "diskimage": "fedora", "profile": "bx2-2x8", "user-data": "u", "volume-size": 120},
                {
                    "name": "large",
                    "cloud-image": "id",
                    "profile": ["bx2-8x32", "cx2-8x16"],
                    "use-spot": True,
                    "spot-fallback": True,
                    "host-key-checking": False,
                },
            ],
        },
        {"name": "other"},
    ],
}


def test_every_key_of_a_provider() -> None:
    """reference/configuration: all keys are read."""
    config = load(EVERYTHING)
    assert (config.max_concurrency, config.priority, config.vpc, config.region) == (5, 7, "ci", "us-south")
    assert (config.credentials_file, config.rate) == ("/etc/nodepool/ibm.env", 0.5)
    assert (config.quota_instances, config.quota_cores, config.quota_ram) == (20, 40, 160)
    assert (config.boot_timeout, config.launch_timeout, config.launch_retries) == (200, 1800, 2)
    assert (config.storage_instance, config.storage_endpoint, config.bucket_name) == (
        *("cos", "https://s3.example.org"),
        "images",
    )
    assert (config.manage_images, config.image_type, config.post_upload_hook) == (True, "vhd", "/usr/bin/hook")


def test_every_key_of_a_pool() -> None:
    """reference/configuration: all keys are read; what a pool does not say is the provider's; one value or several."""
    config = load(EVERYTHING)
    main, other = config.pools["main"], config.pools["other"]
    assert (main.max_servers, main.priority, main.node_attributes) == (10, 3, {"a": 1})
    assert (main.zones, main.subnets, main.public_ipv4, main.floating_ip_pool) == (
        *(["us-south-3"], ["nodes-3"]),
        *(False, 0),
    )
    assert (main.use_internal_ip, main.host_key_checking) == (False, True)
    assert (other.max_servers, other.priority) == (math.inf, 7)
    assert (other.zones, other.subnets) == (["us-south-1", "us-south-2"], ["nodes-1", "nodes-2"])
    assert (other.public_ipv4, other.floating_ip_pool, other.use_internal_ip, other.host_key_checking) == (
        *(True, 3),
        *(True, False),
    )


def test_every_key_of_a_label() -> None:
    """reference/configuration: all keys are read; one profile or several."""
    config = load(EVERYTHING)
    small, large = config.pools["main"].labels["small"], config.pools["main"].labels["large"]
    assert small.diskimage is config.diskimages["fedora"]
    assert (small.profiles, small.user_data, small.volume_size) == (["bx2-2x8"], "u", 120)
    assert (small.use_spot, small.spot_fallback, small.host_key_checking) == (False, False, True)
    assert large.cloud_image is config.cloud_images["id"]
    assert (large.profiles, large.user_data, large.volume_size) == (["bx2-8x32", "cx2-8x16"], None, None)
    assert (large.use_spot, large.spot_fallback, large.host_key_checking) == (True, True, False)


def test_images() -> None:
    """reference/configuration: where images are, and how to log in."""
    config = load(EVERYTHING)
    images = config.cloud_images
    assert images["href"].image_href == "https://us-south.example.org/v1/images/i"
    assert (images["id"].image_id, images["id"].ssh_keys, images["id"].connection_port) == (
        *("r006-1", ["zuul", "admin"]),
        2222,
    )
    assert (images["name"].image_name, images["name"].username, images["name"].ssh_keys) == (
        "ibm-debian-12",
        "root",
        [],
    )
    found = images["filter"]
    assert found.operating_system == {"family": "Debian", "version": 12, "dedicated-host-only": False}
    assert (found.owner_type, found.status) == ("provider", "available")
    fedora, debian = config.diskimages["fedora"], config.diskimages["debian"]
    assert (fedora.pause, fedora.operating_system, fedora.username) == (True, "fedora-40-amd64", "builder")
    assert (fedora.connection_type, fedora.connection_port, fedora.python_path, fedora.shell_type) == (
        *("winrm", 5986),
        *("/py", "cmd"),
    )
    assert (debian.pause, debian.connection_type, list(debian.ssh_keys)) == (False, "ssh", [])


def test_defaults() -> None:
    """reference/configuration: those of Nodepool 11.0.0, but for ``rate``: IBM's answers set the pace."""
    config = load({name: value for name, value in section().items() if name != "rate"})
    pool, label = config.pools["main"], label_of(config)
    assert (config.rate, config.boot_timeout, config.launch_timeout, config.launch_retries) == (None, 120, 3600, 3)
    assert (config.credentials_file, config.image_type) == (None, "qcow2")
    assert (config.quota_instances, config.quota_cores, config.quota_ram) == (None, None, None)
    assert (pool.zones, pool.subnets) == (["us-south-1"], ["nodes-1"])
    assert (pool.public_ipv4, pool.use_internal_ip, pool.host_key_checking) == (False, False, True)
    assert (pool.max_servers, pool.floating_ip_pool, label.host_key_checking) == (math.inf, 10, True)


def test_equal_when_loaded_twice() -> None:
    """6: a reload leaves a provider alone whose section has not changed."""
    assert load(copy.deepcopy(EVERYTHING)) == load(copy.deepcopy(EVERYTHING))
    changed = copy.deepcopy(EVERYTHING)
    changed["cloud-images"][3]["image-filter"]["operating-system"]["version"] = 13
    assert load(EVERYTHING) != load(changed)


# -- what is wrong --

IMAGE = {"name": "debian", "username": "root"}


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (section({"profile": None}), "profile"),
        (section({"profile": []}), "profile is needed"),
        (section({"profile": 7}), "profile"),
        (section({"volume-size": 0}), "volume-size"),
        (section({"colour": "red"}), "colour"),
        (section({"console-log": True}), "console-log"),
        (section({"cloud-image": "nothing"}), "no cloud-image 'nothing'"),
        (section(zone=None), "zone is needed, in the pool or in the provider"),
        (section(subnet=None), "subnet is needed, in the pool or in the provider"),
        (section(pool={"name": "main_1"}), "name must not have _"),
        (section(name="south_1"), "name must not have _"),
        (section(pool={"floating-ip-pool": -1}), "floating-ip-pool"),
        (section(vpc=""), "vpc"),
        (section(region=None), "region"),
        (section(rate=-1), "rate"),
        (section(quota={"disks": 1}), "disks"),
        (section(image_format="raw"), "image-format"),
        (section(object_storage={"endpoint": "e", "bucket-name": "b"}), "instance-name is needed"),
        (section(cloud_images=[IMAGE]), "exactly one of image-href, image-id, image-name, image-filter"),
        (section(cloud_images=[{**IMAGE, "image-id": "i", "image-name": "n"}]), "exactly one of image-href"),
        (section(cloud_images=[{**IMAGE, "image-filter": {"operating-system": {"flavour": "x"}}}]), "there are archi"),
        (section(cloud_images=[{**IMAGE, "image-filter": {"owner-type": "me"}}]), "owner-type"),
        (section(cloud_images=[{**IMAGE, "image-id": "i", "keys": "zuul"}]), "keys"),
    ],
)
def test_refused(tmp_path: Path, data: dict[str, Any], told: str) -> None:
    """reference/configuration: each problem with file, line, and what is allowed."""
    problems = problems_of_section(tmp_path, data)
    assert any(told in problem for problem in problems), problems


def test_uploads_need_a_bucket() -> None:
    """reference/configuration: object-storage is required for uploads; not for an image that is paused."""
    image = {"name": "fedora", "operating-system": "fedora-40-amd64"}
    load(section(diskimages=[{**image, "pause": True}]))
    load(section(diskimages=[image], object_storage=STORAGE))
    with pytest.raises(Exception, match="add object-storage to the provider"):
        load(section(diskimages=[image]))


def test_accepted(tmp_path: Path) -> None:
    assert problems_of_section(tmp_path, section()) == []
