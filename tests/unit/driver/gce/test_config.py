# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.gce.config`, ``image_config`` and ``config_checks`` (reference/configuration)."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import pytest

from tests.support.provider_sections import problems_of_section
from tests.unit.driver.gce.sections import ZONES, load, section

EVERYTHING: dict[str, Any] = {
    "name": "north",
    "driver": "gce",
    "max-concurrency": 5,
    "priority": 7,
    "project": "lab",
    "region": "us-central1",
    "zone": ZONES,
    "credentials-file": "/etc/google.json",
    "endpoint": "https://compute.example.org/",
    "object-storage": {"bucket-name": "images", "endpoint": "https://storage.example.org"},
    "network": "ci",
    "subnetwork": "nodes",
    "network-tags": ["ci", "test-node"],
    "rate": 0.5,
    "rate-limit": 3,
    "boot-timeout": 200,
    "launch-timeout": 1800,
    "launch-retries": 2,
    "post-upload-hook": "/usr/bin/hook",
    "diskimages": [
        {
            "name": "fedora",
            "pause": True,
            "username": "core",
            "key": "ssh-ed25519 NEW",
            "architecture": "ARM64",
            "guest-os-features": ["GVNIC"],
            "connection-type": "winrm",
        }
    ],
    "cloud-images": [
        {
            "name": "debian",
            "image-project": "debian-cloud",
            "image-family": "debian-12",
            "username": "zuul",
            "key": "ssh-ed25519 AAAA",
            "connection-port": 2222,
            "python-path": "/py",
            "shell-type": "cmd",
        },
        {"name": "id", "image-id": "global/images/mine"},
    ],
    "pools": [
        {
            "name": "main",
            "max-servers": 10,
            "max-cores": 40,
            "max-ram": 65536,
            "use-internal-ip": True,
            "public-ipv4": False,
            "host-key-checking": False,
            "network": "other",
            "subnetwork": "others",
            "network-tags": ["one"],
            "node-attributes": {"a": 1},
            "priority": 3,
            "labels": [
                {
                    "name": "small",
                    "diskimage": "fedora",
                    "instance-type": "n2-standard-2",
                    "volume-type": "pd-ssd",
                    "volume-size": 80,
                    "service-account": {"email": "a@lab.iam.gserviceaccount.com", "scopes": ["s"]},
                    "shielded-instance": {"secure-boot": True, "vtpm": False, "integrity-monitoring": True},
                    "metadata": {"startup-script": "s", "year": 2026},
                },
                {
                    "name": "large",
                    "cloud-image": "debian",
                    "instance-type": ["n2-standard-8", "n2d-standard-8"],
                    "use-spot": True,
                    "spot-fallback": True,
                    "console-log": True,
                    "host-key-checking": True,
                },
            ],
        },
        {"name": "other"},
    ],
}


def test_every_key_of_a_provider() -> None:
    """reference/configuration: all keys are read."""
    config = load(EVERYTHING)
    assert (config.max_concurrency, config.priority, config.project) == (5, 7, "lab")
    assert (config.region, config.zones, config.credentials_file) == ("us-central1", ZONES, "/etc/google.json")
    assert (config.endpoint, config.storage_endpoint) == (
        "https://compute.example.org",
        "https://storage.example.org",
    )
    assert (config.bucket_name, config.rate, config.rate_limit) == ("images", 0.5, 3)
    assert (config.boot_timeout, config.launch_timeout, config.launch_retries) == (200, 1800, 2)
    assert (config.post_upload_hook, config.manage_images, config.image_type) == ("/usr/bin/hook", True, "raw")


def test_every_key_of_a_pool() -> None:
    """reference/configuration: all keys are read; what a pool does not say is the provider's."""
    main, other = (load(EVERYTHING).pools[name] for name in ("main", "other"))
    assert (main.max_servers, main.priority, main.node_attributes) == (10, 3, {"a": 1})
    assert (main.max_cores, main.max_ram, other.max_cores, other.max_ram) == (40, 65536, None, None)
    assert (main.use_internal_ip, main.public_ipv4, main.host_key_checking) == (True, False, False)
    assert (main.network, main.subnetwork, main.network_tags) == ("other", "others", ["one"])
    assert (other.max_servers, other.priority) == (math.inf, 7)
    assert (other.network, other.subnetwork, other.network_tags) == ("ci", "nodes", ["ci", "test-node"])


def test_every_key_of_a_label() -> None:
    """reference/configuration: all keys are read."""
    config = load(EVERYTHING)
    small, large = config.pools["main"].labels["small"], config.pools["main"].labels["large"]
    assert small.diskimage is config.diskimages["fedora"]
    assert (small.machine_types, small.volume_type, small.volume_size) == (["n2-standard-2"], "pd-ssd", 80)
    assert (small.service_account, small.scopes) == ("a@lab.iam.gserviceaccount.com", ["s"])
    assert (small.secure_boot, small.vtpm, small.integrity_monitoring) == (True, False, True)
    assert small.metadata == {"startup-script": "s", "year": "2026"}
    assert (small.use_spot, small.spot_fallback, small.host_key_checking, small.console_log) == (False,) * 4
    assert large.cloud_image is config.cloud_images["debian"]
    assert large.machine_types == ["n2-standard-8", "n2d-standard-8"]
    assert (large.use_spot, large.spot_fallback, large.host_key_checking, large.console_log) == (True,) * 4


def test_images() -> None:
    """GC-4, reference/configuration."""
    config = load(EVERYTHING)
    debian, other, fedora = config.cloud_images["debian"], config.cloud_images["id"], config.diskimages["fedora"]
    assert (debian.image_project, debian.image_family, debian.image_id) == ("debian-cloud", "debian-12", None)
    assert (debian.username, debian.ssh_key, debian.connection_port) == ("zuul", "ssh-ed25519 AAAA", 2222)
    assert (debian.python_path, debian.shell_type, other.image_id) == ("/py", "cmd", "global/images/mine")
    assert (other.username, other.ssh_key) == (None, None)
    assert (fedora.pause, fedora.username, fedora.ssh_key) == (True, "core", "ssh-ed25519 NEW")
    assert (fedora.architecture, fedora.guest_features, fedora.connection_type) == ("ARM64", ["GVNIC"], "winrm")


def test_defaults() -> None:
    """reference/configuration: those of Nodepool 11.0.0."""
    data = section()
    del data["rate"]
    config = load(data)
    pool = config.pools["main"]
    label = pool.labels["small"]
    assert (config.boot_timeout, config.launch_timeout, config.launch_retries, config.rate) == (60, 3600, 3, 2)
    assert (config.zones, config.network, config.subnetwork, config.network_tags) == ([ZONES[0]], "default", None, [])
    assert (pool.use_internal_ip, pool.public_ipv4, pool.host_key_checking) == (False, True, True)
    assert (pool.max_servers, label.volume_type, label.volume_size) == (math.inf, "pd-standard", 10)
    assert (label.service_account, label.secure_boot, label.vtpm, label.metadata) == (None, None, None, {})
    assert config.endpoint == "https://compute.googleapis.com"


def test_equal_when_loaded_twice() -> None:
    """6: a reload leaves a provider alone whose section has not changed."""
    assert load(copy.deepcopy(EVERYTHING)) == load(copy.deepcopy(EVERYTHING))
    changed = copy.deepcopy(EVERYTHING)
    changed["pools"][0]["labels"][0]["shielded-instance"]["vtpm"] = True
    assert load(EVERYTHING) != load(changed)


IMAGE = {"name": "debian", "username": "zuul"}


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (section(zone=[]), "a zone is needed, such as us-central1-a"),
        (section(zone=7), "zone"),
        (section(project=""), "project"),
        (section(rate=-1), "rate"),
        (section(endpoint="compute.googleapis.com"), "an address without a path is needed"),
        (section(endpoint="https://compute.googleapis.com/compute/v1"), "an address without a path is needed"),
        (section(object_storage={"endpoint": "https://s"}), "bucket-name"),
        (section(network_tags=["CI"]), "small letters, digits and -"),
        (section(pool={"network-tags": ["a_b"]}), "small letters, digits and -"),
        (section(diskimages=[{"name": "fedora"}]), "add object-storage.bucket-name to the provider"),
        (section({"instance-type": []}), "a machine type is needed, such as n2-standard-2"),
        (section({"volume-size": 0}), "volume-size"),
        (section({"colour": "red"}), "colour"),
        (section({"metadata": {"a b": "c"}}), "letters, digits, - and _"),
        (section({"service-account": {"scopes": ["s"]}}), "email"),
        (section({"shielded-instance": {"vtpm": "yes"}}), "vtpm"),
        (section({"cloud-image": "nothing"}), "no cloud-image 'nothing'"),
        (section(cloud_images=[IMAGE]), "image-id is needed, or both image-project and image-family"),
        (section(cloud_images=[{**IMAGE, "image-family": "f"}]), "image-id is needed, or both"),
        (section(cloud_images=[{**IMAGE, "image-id": "i", "image-family": "f"}]), "only one of image-id and image-fam"),
    ],
)
def test_refused(tmp_path: Path, data: dict[str, Any], told: str) -> None:
    """reference/configuration: each problem with file, line, and what is allowed."""
    problems = problems_of_section(tmp_path, data)
    assert any(told in problem for problem in problems), problems


def test_accepted(tmp_path: Path) -> None:
    assert problems_of_section(tmp_path, section()) == []
