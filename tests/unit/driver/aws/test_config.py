# SPDX-License-Identifier: Apache-2.0
"""The provider section (reference/configuration)."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodepool.config.objects import Config, DiskImage
from nodepool.config.validator import validate
from tests.unit.driver.aws.support import load, section

EVERYTHING: dict[str, Any] = yaml.safe_load("""
{name: north, driver: aws, max-concurrency: 5, priority: 7, region-name: eu-north-1, profile-name: ci, rate: 4,
 boot-timeout: 200, launch-timeout: 1800, launch-retries: 2, max-servers: 50, max-cores: 100, max-ram: 200000,
 max-resources: {L-1216C47A: 64, L-34B43A08: 32}, object-storage: {bucket-name: images}, image-format: vmdk,
 image-import-timeout: 600, post-upload-hook: /usr/bin/hook, use-internal-ip: true, host-key-checking: false,
 public-ipv4: false, public-ipv6: true,
 diskimages: [
  {name: fedora, pause: true, username: core, architecture: arm64, ena-support: false, volume-size: 40,
   volume-type: io2, import-method: ebs-direct, imds-support: v2.0, iops: 1000, throughput: 200, tags: {release: 40},
   connection-type: winrm, python-path: /py, shell-type: cmd},
  {name: windows}],
 cloud-images: [
  {name: debian, image-id: ami-1, username: admin, connection-port: 2222},
  {name: newest, username: root, image-filters: [
   {name: name, values: ["debian-*"]}, {Name: architecture, Values: [x86_64, arm64]}]}],
 pools: [
  {name: main, max-servers: 10, max-cores: 20, max-ram: 4096, max-resources: {L-1216C47A: 8},
   availability-zone: eu-north-1a, subnet-id: subnet-1, security-group-id: sg-1, public-ipv4: true, public-ipv6: false,
   use-internal-ip: false, host-key-checking: true, node-attributes: {a: 1}, priority: 3, labels: [
    {name: small, diskimage: fedora, key-name: zuul, instance-type: t3.medium, ebs-optimized: true, volume-type: gp3,
     volume-size: 80, iops: 4000, throughput: 250, userdata: "#cloud-config",
     iam-instance-profile: {arn: "arn:aws:iam::1:instance-profile/x"}, tags: {team: ci, year: 2026},
     dynamic-tags: {tenant: "{request.tenant_name}"}, imdsv2: required, dedicated-host: true},
    {name: fleet, cloud-image: newest, key-name: zuul, iam-instance-profile: {name: x}, use-spot: true,
     fleet: {instance-types: [t3.medium, t3a.medium], allocation-strategy: prioritized}, host-key-checking: false}]},
  {name: other, public-ipv4: false, public-ip-address: true}]}
""")
#: What the loaded configuration has, where it is not plainly the value of its key. What a pool leaves out is the
#: provider's; the old name of public-ipv4 wins. How to log in to an image that is uploaded stands in the provider.
VALUES: dict[str, dict[str, Any]] = yaml.safe_load("""
{"": {bucket_name: images, image_type: vmdk, manage_images: true, max_resources: {L-1216C47A: 64, L-34B43A08: 32}},
 pools.main: {availability_zones: [eu-north-1a], max_resources: {L-1216C47A: 8, L-34B43A08: 32}, max_cores: 20},
 pools.other: {max_servers: 50, max_cores: 100, max_ram: 200000, priority: 7, public_ipv4: true, public_ipv6: true,
  use_internal_ip: true, host_key_checking: false, max_resources: {L-1216C47A: 64, L-34B43A08: 32}},
 pools.main.labels.small: {instance_types: [t3.medium], fleet_types: null, profile_name: null, host_key_checking: true,
  profile_arn: "arn:aws:iam::1:instance-profile/x", tags: {team: ci, year: "2026"}},
 pools.main.labels.fleet: {instance_types: [], fleet_types: [t3.medium, t3a.medium], fleet_strategy: prioritized,
  profile_name: x, profile_arn: null, host_key_checking: false},
 diskimages.fedora: {username: core, connection_port: 5986, python_path: /py, tags: {release: 40}},
 diskimages.windows: {username: builder, python_path: auto, volume_size: null, volume_type: gp3},
 cloud_images.debian: {image_id: ami-1, image_filters: [], connection_port: 2222}}
""")
#: Those of Nodepool 11.0.0.
DEFAULTS: dict[str, dict[str, Any]] = yaml.safe_load("""
{"": {rate: 2, boot_timeout: 180, launch_timeout: 3600, launch_retries: 3, image_type: raw},
 pools.main: {max_servers: .inf, max_resources: {}, public_ipv4: true, use_internal_ip: false, max_cores: null}}
""")
LEAST = {"name": "north", "driver": "aws", "region-name": "r", "pools": [{"name": "main"}]}


def everything(change: Any = lambda _: None) -> dict[str, Any]:
    data = copy.deepcopy(EVERYTHING)
    change(data)
    return data


@pytest.mark.parametrize(("data", "expected"), [(EVERYTHING, VALUES), (LEAST, DEFAULTS)], ids=["all", "defaults"])
def test_every_key(data: dict[str, Any], expected: dict[str, dict[str, Any]]) -> None:
    """reference/configuration: all keys are read."""
    whole = Config()
    for name in ("fedora", "windows"):
        image = whole.diskimages[name] = DiskImage(name)
        image.username, image.python_path = "builder", "/top"
    config = load(everything(lambda empty: (empty.clear(), empty.update(data))), whole)
    for path, values in expected.items():
        found: Any = config
        for step in filter(None, path.split(".")):
            found = found[step] if isinstance(found, dict) else getattr(found, step)
        assert {name: getattr(found, name) for name in values} == values, path
    if expected is VALUES:
        labels = config.pools["main"].labels
        assert labels["small"].diskimage is config.diskimages["fedora"]
        assert labels["fleet"].cloud_image is config.cloud_images["newest"]
        assert whole.diskimages["fedora"].image_types == {"vmdk"}
        assert [pool.name for pool in whole.labels["small"].pools] == ["main"]
        filters = [(each.name, each.values) for each in config.cloud_images["newest"].image_filters]
        assert filters == [("name", ["debian-*"]), ("architecture", ["x86_64", "arm64"])]


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
    more: dict[str, Any] = {"image-format": image_format, "object-storage": {"bucket-name": "images"}}
    found = list(load(section(diskimages=images, **more)).localProblems())
    assert [key for key, _ in found] == (["image-format"] if words else [])
    assert all(words in text and "fedora" in text for _, text in found)


def _image(data: dict[str, Any], index: int = 0) -> Any:
    return data["cloud-images"][index]


def _label(data: dict[str, Any], index: int = 0) -> Any:
    return data["pools"][0]["labels"][index]


@pytest.mark.parametrize(
    ("change", "key", "text"),
    [
        # With every key that 11.0.0 takes nothing is wrong.
        (lambda d: None, "", ""),
        (lambda d: d.pop("region-name"), "region-name", "required"),
        (lambda d: d.update(rate="fast"), "rate", "number"),
        (lambda d: d.update({"image-format": "qcow2"}), "image-format", "raw"),
        (lambda d: d.update({"max-resources": {"L-1": "many"}}), "max-resources.L-1", "whole number"),
        (lambda d: d.update({"image-name-format": "x"}), "image-name-format", "unknown"),
        (lambda d: d.pop("object-storage"), "diskimages[1]", "object-storage.bucket-name"),
        (lambda d: _image(d).pop("username"), "cloud-images[0].username", "required"),
        (lambda d: _image(d).pop("image-id"), "cloud-images[0]", "image-id and image-filters"),
        (lambda d: _image(d, 1).update({"image-id": "ami-2"}), "cloud-images[1]", "image-id and image-filters"),
        (lambda d: _image(d, 1)["image-filters"][0].pop("name"), "image-filters[0]", "name is needed"),
        (lambda d: _image(d, 1)["image-filters"][1].pop("Values"), "image-filters[1]", "values is needed"),
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
    """reference/configuration: ``config-validate`` says file, line, key and what is allowed."""
    whole = {
        "zookeeper-servers": [{"host": "zk"}],
        "zookeeper-tls": {"cert": "c", "key": "k", "ca": "a"},
        "labels": [{"name": "small"}, {"name": "fleet"}],
        "diskimages": [{"name": "fedora"}, {"name": "windows"}],
        "providers": [everything(change)],
    }
    file = tmp_path / "nodepool.yaml"
    file.write_text(yaml.safe_dump(whole, sort_keys=False), encoding="utf-8")
    found = [str(problem) for problem in validate(str(file))]
    assert len(found) == bool(key)
    for problem in found:
        line, where, words = problem.removeprefix(f"{file}:").split(": ", 2)
        assert line.isdigit()
        assert where.endswith(key)
        assert text in words
