# SPDX-License-Identifier: Apache-2.0
"""What ``nodepool check`` says of a region, on a simulated one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.driver.ibmvpc.region import Here, at_simulator, section


def test_preflight(here: Here) -> None:
    """CHK: everything is there, but for what is made with the first launch."""
    found = list(here.adapter.preflight())
    assert all(result.ok for result in found)
    assert {result.subject: result.status for result in found} == {
        "region us-south": "ok",
        "pool main": "warning",
        "label small of pool main": "ok",
        "quota": "warning",
    }
    assert here.calls("platform.create_resource_group") == 0


def test_preflight_of_uploads(tmp_path: Path) -> None:
    """CHK: bucket, its service and the operating systems of images."""
    storage = {"instance-name": "storage", "endpoint": "", "bucket-name": "images"}
    images = [
        {"name": "debian", "operating-system": "debian-12-amd64"},
        {"name": "other", "operating-system": "nothing"},
        {"name": "paused", "operating-system": "nothing", "pause": True},
    ]
    with at_simulator(tmp_path, section(object_storage=storage, diskimages=images)) as here:
        found = {result.subject: result.status for result in here.adapter.preflight()}
        assert (found["object storage"], found["diskimage debian"], found["diskimage other"]) == ("ok", "ok", "failed")
        assert "diskimage paused" not in found
        here.simulator.change(buckets=["others"])
        (bad,) = (result for result in here.adapter.preflight() if result.subject == "object storage")
        assert "NoSuchBucket" in bad.text


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (section(vpc="nothing"), "no VPC 'nothing'"),
        (section(subnet="nothing"), "no subnet 'nothing'"),
        (section(zone="us-south-2"), "no subnet of pool main is in zone us-south-2"),
        (section({"profile": ["bx2-2x8", "nothing"]}), "no profile 'nothing'"),
        (section(cloud_images=[{"name": "debian", "username": "r", "image-name": "x"}]), "no image with the name 'x'"),
        (section(cloud_images=[{"name": "debian", "username": "r", "image-id": "x"}]), "no image 'x'"),
        (
            section(cloud_images=[{"name": "debian", "username": "r", "image-name": "x", "keys": ["nothing"]}]),
            "no SSH key 'nothing'",
        ),
    ],
)
def test_preflight_finds(tmp_path: Path, data: dict[str, object], told: str) -> None:
    """CHK: one line each with cause and remedy."""
    with at_simulator(tmp_path, data) as here:
        bad = [result for result in here.adapter.preflight() if not result.ok]
        assert any(told in result.text and result.remedy for result in bad), bad
