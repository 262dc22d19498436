# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.azure.config`, ``image_config`` and ``config_checks`` (reference/configuration)."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import pytest

from nodepool.config.objects import DiskImage
from tests.support.provider_sections import problems_of_section
from tests.unit.driver.azure.support import load, section

EVERYTHING: dict[str, Any] = {
    "name": "north",
    "driver": "azure",
    "max-concurrency": 5,
    "priority": 7,
    "location": "northeurope",
    "resource-group": "nodepool",
    "resource-group-location": "westeurope",
    "auth-path": "/etc/azure.json",
    "network": {"network": "ci", "resource-group": "net", "subnet": "nodes"},
    "ipv4": True,
    "ipv6": True,
    "public-ipv4": False,
    "public-ipv6": True,
    "use-internal-ip": True,
    "host-key-checking": False,
    "rate": 0.5,
    "boot-timeout": 200,
    "launch-timeout": 1800,
    "launch-retries": 2,
    "post-upload-hook": "/usr/bin/hook",
    "zuul-public-key": "ssh-rsa OLD",
    "diskimages": [
        {
            "name": "fedora",
            "pause": True,
            "username": "core",
            "key": "ssh-ed25519 NEW",
            "tags": {"release": 40},
            "connection-type": "winrm",
            "python-path": "/py",
            "shell-type": "cmd",
        },
        {"name": "windows", "password": "swordfish"},
    ],
    "cloud-images": [
        {
            "name": "market",
            "username": "zuul",
            "image-reference": {"sku": "12", "publisher": "Debian", "offer": "debian-12", "version": "latest"},
            "connection-port": 2222,
        },
        {"name": "id", "username": "zuul", "key": "ssh-ed25519 NEW", "image-id": "/subscriptions/s/images/i"},
        {
            "name": "filter",
            "username": "zuul",
            "generate-password": True,
            "image-filter": {"name": "n", "location": "l", "tags": {"release": 12}},
        },
        {"name": "shared", "username": "zuul", "shared-gallery-image": {"gallery-name": "g", "name": "n"}},
        {
            "name": "community",
            "username": "zuul",
            "community-gallery-image": {"gallery-name": "g", "name": "n", "version": "1.2.3"},
        },
    ],
    "pools": [
        {
            "name": "main",
            "max-servers": 10,
            "availability-zones": ["1", "2"],
            "ipv4": False,
            "ipv6": False,
            "public-ipv4": False,
            "public-ipv6": False,
            "use-internal-ip": False,
            "host-key-checking": True,
            "node-attributes": {"a": 1},
            "priority": 3,
            "labels": [
                {
                    "name": "small",
                    "diskimage": "fedora",
                    "hardware-profile": {"vm-size": "Standard_B1s"},
                    "tags": {"team": "ci", "year": 2026},
                    "dynamic-tags": {"tenant": "{request.tenant_name}"},
                    "user-data": "u",
                    "custom-data": "c",
                    "volume-size": 80,
                },
                {
                    "name": "large",
                    "cloud-image": "market",
                    "hardware-profile": {"vm-size": ["A", "B"]},
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
    assert (config.max_concurrency, config.priority, config.location) == (5, 7, "northeurope")
    assert (config.resource_group, config.resource_group_location) == ("nodepool", "westeurope")
    assert (config.auth_path, config.subnet) == ("/etc/azure.json", ("net", "ci", "nodes"))
    assert (config.rate, config.boot_timeout, config.launch_timeout, config.launch_retries) == (0.5, 200, 1800, 2)
    assert config.post_upload_hook == "/usr/bin/hook"
    assert (config.manage_images, config.image_type) == (True, "vhd")


def test_every_key_of_a_pool() -> None:
    """reference/configuration: all keys are read; what a pool does not say is the provider's."""
    config = load(EVERYTHING)
    main, other = config.pools["main"], config.pools["other"]
    assert (main.max_servers, main.availability_zones, main.priority) == (10, ["1", "2"], 3)
    assert (main.ipv4, main.ipv6, main.public_ipv4, main.public_ipv6) == (True, False, False, False)
    assert (main.use_internal_ip, main.host_key_checking, main.node_attributes) == (False, True, {"a": 1})
    assert (other.max_servers, other.availability_zones, other.priority) == (math.inf, [], 7)
    assert (other.ipv4, other.ipv6, other.public_ipv4, other.public_ipv6) == (True, True, False, True)
    assert (other.use_internal_ip, other.host_key_checking) == (True, False)


def test_every_key_of_a_label() -> None:
    """reference/configuration: all keys are read."""
    config = load(EVERYTHING)
    small, large = config.pools["main"].labels["small"], config.pools["main"].labels["large"]
    assert small.diskimage is config.diskimages["fedora"]
    assert (small.vm_sizes, small.tags) == (["Standard_B1s"], {"team": "ci", "year": "2026"})
    assert small.dynamic_tags == {"tenant": "{request.tenant_name}"}
    assert (small.user_data, small.custom_data, small.volume_size) == ("u", "c", 80)
    assert (small.use_spot, small.spot_fallback, small.host_key_checking) == (False, False, True)
    assert large.cloud_image is config.cloud_images["market"]
    assert (large.vm_sizes, large.use_spot, large.spot_fallback, large.host_key_checking) == (
        *(["A", "B"], True),
        *(True, False),
    )


def test_images() -> None:
    """AZ-6, reference/configuration: where images are; keys of the provider are those of images without one."""
    config = load(EVERYTHING)
    images = config.cloud_images
    assert [name for name, image in images.items() if image.has_filter] == ["filter"]
    assert {name: image.reference() for name, image in images.items() if not image.has_filter} == {
        "market": {"sku": "12", "publisher": "Debian", "offer": "debian-12", "version": "latest"},
        "id": {"id": "/subscriptions/s/images/i"},
        "shared": {"sharedGalleryImageId": "/SharedGalleries/g/Images/n"},
        "community": {"communityGalleryImageId": "/CommunityGalleries/g/Images/n/Versions/1.2.3"},
    }
    found = images["filter"]
    assert (found.filter_name, found.filter_location, found.filter_tags) == ("n", "l", {"release": "12"})
    assert (found.generate_password, images["market"].connection_port) == (True, 2222)
    assert (images["market"].ssh_key, images["id"].ssh_key) == ("ssh-rsa OLD", "ssh-ed25519 NEW")
    fedora, windows = config.diskimages["fedora"], config.diskimages["windows"]
    assert (fedora.pause, fedora.username, fedora.ssh_key, fedora.tags) == (
        *(True, "core"),
        *("ssh-ed25519 NEW", {"release": "40"}),
    )
    assert (fedora.connection_type, fedora.python_path, fedora.shell_type) == ("winrm", "/py", "cmd")
    assert (windows.username, windows.password, windows.ssh_key) == ("builder", "swordfish", "ssh-rsa OLD")
    assert DiskImage("x").username != "builder"


def test_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    """reference/configuration: those of Nodepool 11.0.0; AZ-1: the path may be in the environment."""
    monkeypatch.setenv("AZURE_AUTH_LOCATION", "/from/environment")
    config = load(section())
    pool = config.pools["main"]
    assert (config.boot_timeout, config.launch_timeout, config.launch_retries) == (120, 3600, 3)
    assert config.auth_path == "/from/environment"
    assert config.subnet == ("nodepool", "ci", "default")
    assert (pool.ipv4, pool.ipv6, pool.public_ipv4, pool.public_ipv6) == (True, False, True, False)
    assert (pool.use_internal_ip, pool.host_key_checking, pool.max_servers) == (False, True, math.inf)
    assert load({**section(rate=1), "rate": 1}).rate == 1


def test_subnet_id() -> None:
    data = section(subnet_id="/subscriptions/s/subnets/x")
    del data["network"]
    config = load(data)
    assert (config.subnet, config.subnet_id) == (None, "/subscriptions/s/subnets/x")


def test_equal_when_loaded_twice() -> None:
    """6: a reload leaves a provider alone whose section has not changed."""
    assert load(copy.deepcopy(EVERYTHING)) == load(copy.deepcopy(EVERYTHING))
    changed = copy.deepcopy(EVERYTHING)
    changed["cloud-images"][2]["image-filter"]["tags"] = {"release": 13}
    assert load(EVERYTHING) != load(changed)


# -- what is wrong --

IMAGE = {"name": "debian", "username": "zuul"}
REFERENCE = {"publisher": "P", "offer": "O", "sku": "S", "version": "V"}


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (section({"hardware-profile": {}}), "hardware-profile.vm-size is needed"),
        (section({"hardware-profile": {"vm-size": 7}}), "vm-size"),
        (section({"volume-size": 0}), "volume-size"),
        (section({"colour": "red"}), "colour"),
        (section({"console-log": True}), "console-log"),
        (section({"cloud-image": "nothing"}), "no cloud-image 'nothing'"),
        (section(pool={"availability-zones": "1"}), "availability-zones"),
        (section(network=None), "exactly one of network and subnet-id"),
        (section(subnet_id="/s"), "exactly one of network and subnet-id"),
        (section(network={"subnet": "s"}), "name of the network is needed"),
        (section(network={"network": "n", "vnet": "s"}), "there are network, resource-group, subnet"),
        (section(rate=-1), "rate"),
        (section(location=""), "location"),
        (section(cloud_images=[IMAGE]), "exactly one of image-reference"),
        (section(cloud_images=[{**IMAGE, "image-id": "i", "image-reference": REFERENCE}]), "exactly one of image-ref"),
        (section(cloud_images=[{**IMAGE, "image-reference": {**REFERENCE, "sku": ""}}]), "sku"),
        (section(cloud_images=[{**IMAGE, "image-reference": {"publisher": "P"}}]), "sku is needed"),
        (section(cloud_images=[{**IMAGE, "shared-gallery-image": {"name": "n"}}]), "gallery-name is needed"),
        (
            section(cloud_images=[{**IMAGE, "image-id": "i", "password": "p", "generate-password": True}]),
            "only one of password",
        ),
    ],
)
def test_refused(tmp_path: Path, data: dict[str, Any], told: str) -> None:
    """reference/configuration: each problem with file, line, and what is allowed."""
    problems = problems_of_section(tmp_path, data)
    assert any(told in problem for problem in problems), problems


def test_accepted(tmp_path: Path) -> None:
    assert problems_of_section(tmp_path, section()) == []
