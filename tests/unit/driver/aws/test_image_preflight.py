# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.aws.adapter`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nodepool.driver.aws.adapter import ImagePreflight
from tests.unit.driver.aws.image_support import ImageRig
from tests.unit.driver.aws.support import error


def rig_of(directory: Path, *images: dict[str, Any], image_format: str = "raw", **answers: Any) -> ImageRig:
    """A region that can be asked for everything, but for ``answers``."""
    disks = [{"name": f"image-{number}", **image} for number, image in enumerate(images)]
    rig = ImageRig(directory, None, **{"diskimages": disks, "image-format": image_format})
    tasks: dict[str, Any] = {"describe_import_snapshot_tasks": {}, "describe_import_image_tasks": {}}
    rig.region.answers |= {"list_objects_v2": {}, **tasks, **answers}
    return rig


def results(rig: ImageRig) -> list[tuple[str, str, str]]:
    return [(found.subject, found.status, found.remedy) for found in ImagePreflight(rig.config, rig.images).results()]


def test_all_is_there(tmp_path: Path) -> None:
    """A line for each that is uploaded; the same is asked once, and nothing that changes something."""
    methods = ("snapshot", "snapshot", "image", "ebs-direct")
    rig = rig_of(tmp_path, *({"import-method": method} for method in methods), {"pause": True})
    assert results(rig) == [(f"diskimage image-{number}", "ok", "") for number in range(4)]
    assert [name for name, _ in rig.region.calls] == [
        *("list_objects_v2", "describe_import_snapshot_tasks", "list_objects_v2", "describe_import_image_tasks"),
    ]


@pytest.mark.parametrize(
    ("answers", "remedy"),
    [
        ({"list_objects_v2": error("NoSuchBucket", "there is none", 404)}, "create the bucket, or correct bucket-name"),
        ({"list_objects_v2": error("AccessDenied")}, "allow it in the IAM policy of the credentials"),
        (
            {"describe_import_snapshot_tasks": error("UnauthorizedOperation")},
            "allow it in the IAM policy of the credentials",
        ),
    ],
)
def test_what_is_missing(tmp_path: Path, answers: dict[str, Any], remedy: str) -> None:
    """AW-17: the bucket, or what the credentials are allowed."""
    rig = rig_of(tmp_path, {}, **answers)
    assert results(rig) == [("diskimage image-0", "failed", remedy)]
    (found,) = ImagePreflight(rig.config, rig.images).results()
    assert "Provider" not in found.text


def test_without_credentials(tmp_path: Path) -> None:
    """Nothing else is asked."""
    rig = rig_of(tmp_path, {}, describe_availability_zones=error("AuthFailure"))
    assert len(list(rig.adapter.preflight())) == len(rig.region.calls) == 1
    zones = {"AvailabilityZones": [{"ZoneName": "eu-north-1a", "State": "available"}]}
    rig = rig_of(tmp_path, {}, describe_availability_zones=zones, describe_subnets=error("UnauthorizedOperation"))
    rig.region.answers |= {"describe_key_pairs": {}, "describe_instance_type_offerings": {}}
    assert [found.ok for found in rig.adapter.preflight() if found.subject == "diskimage image-0"] == [True]


def test_format(tmp_path: Path) -> None:
    """AW-18: it does not fit; nothing is asked."""
    rig = rig_of(tmp_path, {"import-method": "ebs-direct"}, image_format="vmdk")
    assert [(subject, status) for subject, status, _ in results(rig)] == [("diskimage image-0", "failed")]
    assert not rig.region.calls
