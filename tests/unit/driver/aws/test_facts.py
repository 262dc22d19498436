# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.aws.facts`."""

from __future__ import annotations

from typing import Any

import pytest

from nodepool.driver.aws.facts import FILTERED_SECONDS, AwsFacts
from nodepool.driver.framework.cloud_errors import CloudAway
from nodepool.exceptions import NotFound, RuntimeConfigurationException
from tests.unit.driver.aws.support import IMAGE, Rig, error, section


def filtered() -> Rig:
    filters = [{"name": "name", "values": ["debian-*", "sid"]}]
    data = section()
    data["cloud-images"] = [{"name": "debian", "username": "admin", "image-filters": filters}]
    rig = Rig(data)
    rig.adapter.facts = AwsFacts(rig.adapter.client, rig.clock)
    return rig


def image(image_id: str, created: str, state: str = "available") -> dict[str, Any]:
    return {**IMAGE, "ImageId": image_id, "CreationDate": created, "State": state}


def test_newest_image() -> None:
    """reference/configuration: of the images for which all filters hold, the newest that can be used."""
    rig = filtered()
    found = [image("ami-1", "2026-01"), image("ami-2", "2026-03"), image("ami-3", "2026-04", "pending")]
    rig.region.answers["describe_images"] = {"Images": found}
    assert rig.adapter.facts.cloud_image_id(rig.label) == "ami-2"
    assert rig.region.last("describe_images")["Filters"] == [{"Name": "name", "Values": ["debian-*", "sid"]}]


def test_newest_image_is_looked_up_again() -> None:
    """reference/configuration: after five minutes; or at once when a launch was refused."""
    rig = filtered()
    facts = rig.adapter.facts
    rig.region.answers["describe_images"] = [{"Images": [image(f"ami-{n}", "2026")]} for n in range(3)]
    assert [facts.cloud_image_id(rig.label) for _ in range(2)] == ["ami-0", "ami-0"]
    rig.clock.now += FILTERED_SECONDS + 1
    assert facts.cloud_image_id(rig.label) == "ami-1"
    facts.forget(rig.label)
    assert facts.cloud_image_id(rig.label) == "ami-2"


def test_no_image() -> None:
    """reference/configuration: a failed launch that says which filters."""
    rig = filtered()
    rig.region.answers["describe_images"] = {"Images": []}
    with pytest.raises(NotFound, match=r"no image has name=debian-\*,sid; correct image-filters of .*'debian'"):
        rig.adapter.facts.cloud_image_id(rig.label)


def test_unknown_type() -> None:
    """AW-16: the label can never work."""
    rig = Rig()
    rig.region.answers["describe_instance_types"] = error("InvalidInstanceType")
    with pytest.raises(RuntimeConfigurationException, match=r"eu-north-1 has no instance type 't3\.medium'"):
        rig.adapter.getQuotaForLabel(rig.label)


def test_types_are_not_known_while_aws_is_away() -> None:
    """That says nothing of the label, and is asked again."""
    rig = Rig()
    known = rig.region.answers["describe_instance_types"]
    rig.region.answers["describe_instance_types"] = [error("InternalError", status=500), known]
    with pytest.raises(CloudAway):
        rig.adapter.getQuotaForLabel(rig.label)
    assert rig.adapter.getQuotaForLabel(rig.label).quota["compute"]["cores"] == 1
