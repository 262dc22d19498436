# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.aws.adapter`: what the contract suite does not reach."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nodepool.driver.aws.images import AwsResource
from nodepool.exceptions import ImageCreateException
from tests.unit.driver.aws.image_support import ImageRig
from tests.unit.driver.aws.support import METADATA, TAGS, Rig, host, instance, section, shown


@pytest.fixture
def rig() -> Rig:
    return Rig()


def volume(volume_id: str, state: str, **more: Any) -> dict[str, Any]:
    return {"VolumeId": volume_id, "State": state, "Tags": TAGS, **more}


def test_instances_of_all(rig: Rig) -> None:
    """CM-4, Q-4: as they are now, also those of others, with what they use; those that have ended do not count."""
    rig.region.answers["describe_instances"] = shown(
        instance("i-1"), instance("i-2", Tags=[]), instance("i-3", "terminated")
    )
    found = rig.adapter.listInstances()
    assert [(made.external_id, made.metadata) for made in found] == [
        ({"instance": "i-1"}, METADATA),
        ({"instance": "i-2"}, {}),
    ]
    assert [made.getQuotaInformation().quota["compute"]["ram"] for made in found] == [4096, 4096]
    assert rig.region.count("describe_instances") == rig.region.count("describe_instance_types") == 1


def test_what_may_be_left(rig: Rig) -> None:
    """AW-20: instances, volumes that nothing uses, and images."""
    rig.region.answers["describe_instances"] = shown(instance("i-1"))
    rig.region.answers["describe_volumes"] = {
        "Volumes": [volume("vol-1", "in-use"), volume("vol-2", "available"), volume("vol-3", "deleting")]
    }
    rig.region.answers["describe_hosts"] = {
        "Hosts": [host("h-1"), host("h-2", "released"), host("h-3", Instances=[{"InstanceId": "i-1"}])]
    }
    found = list(rig.adapter.listResources())
    assert [(resource.type, resource.id, resource.metadata) for resource in found] == [
        ("instance", "i-1", METADATA),
        ("volume", "vol-2", METADATA),
        ("host", "h-1", METADATA),
        ("ami", "ami-1", {}),
    ]
    filters = [{"Name": "tag-key", "Values": ["nodepool_provider_name"]}]
    assert rig.region.last("describe_hosts")["Filter"] == filters


def test_deletion_of_what_is_left(rig: Rig) -> None:
    """AW-20."""
    rig.region.answers["delete_volume"] = rig.region.answers["release_hosts"] = {}
    for kind, found in (("instance", "i-1"), ("volume", "vol-1"), ("host", "h-1")):
        rig.adapter.deleteResource(AwsResource({}, kind, found))
    assert rig.region.calls == [
        ("terminate_instances", {"InstanceIds": ["i-1"]}),
        ("delete_volume", {"VolumeId": "vol-1"}),
        ("release_hosts", {"HostIds": ["h-1"]}),
    ]


def test_images(tmp_path: Path) -> None:
    """D-1: the format is that of the provider unless the builder says another; lists and deletions are those of AWS."""
    rig = ImageRig(tmp_path, {"import-method": "ebs-direct"}, **{"image-format": "vmdk"})
    (tmp_path / "image").touch()
    with pytest.raises(ImageCreateException, match="they must be raw, not vmdk"):
        rig.adapter.uploadImage(rig.config.diskimages["debian"], "debian-1", str(tmp_path / "image"))
    rig.region.answers |= {
        "describe_images": {"Images": []},
        "list_objects_v2": {},
        "list_multipart_uploads": {},
        "describe_import_snapshot_tasks": {},
        "describe_import_image_tasks": {},
    }
    assert list(rig.adapter.listImages()) == []
    rig.adapter.deleteImage("ami-1")
    assert rig.region.last("describe_images") == {"ImageIds": ["ami-1"]}


def test_console() -> None:
    """Only for labels that want it."""
    rig = Rig(section({"console-log": True}))
    rig.region.answers["get_console_output"] = {"Output": "login:"}
    assert rig.adapter.getConsoleLog(rig.label, {"instance": "i-1"}) == "login:"
    assert rig.adapter.getConsoleLog(rig.label, None) is None
    other = Rig()
    assert other.adapter.getConsoleLog(other.label, {"instance": "i-1"}) is None
    assert not other.region.calls


def test_stop(rig: Rig) -> None:
    rig.adapter.client.instances()
    rig.adapter.stop()
    assert rig.region.closed
