# SPDX-License-Identifier: Apache-2.0
"""Uploads to a simulated subscription (AZ-12, AZ-13)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nodepool.driver.azure.config import MIB
from nodepool.driver.framework.cloud_errors import CloudAway
from nodepool.driver.framework.uploads import UploadGivenUp, watched
from nodepool.exceptions import ImageCreateException
from simulators.azure import ArmErrorRule
from tests.support.vhd import fixed_footer
from tests.unit.driver.azure.support import PROVIDER, Here, at_simulator, section

SIZE = 9 * MIB
#: Two of three segments have something in them.
CONTENT = b"boot" * 1024 + bytes(SIZE - 4096) + fixed_footer(SIZE)
METADATA = {
    "nodepool_build_id": "build",
    "nodepool_upload_id": "upload",
    "nodepool_provider_name": PROVIDER,
    "release": "39",
}


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Here]:
    data = section(diskimages=[{"name": "fedora", "tags": {"release": 40}}])
    with at_simulator(tmp_path, data, boot_seconds=(0, 0)) as made:
        yield made


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "image.vhd"
    path.write_bytes(CONTENT)
    return path


def upload(here: Here, file: Path, **more: str) -> Any:
    image = here.adapter.config.diskimages["fedora"]
    return here.adapter.uploadImage(image, "fedora-1", str(file), "vhd", {**METADATA, **more})


def left(here: Here) -> tuple[int, int]:
    """Disks, and images of uploads; one image is there to begin with."""
    contents = here.simulator.state()["contents"]
    return contents["disks"], contents["images"] - 1


def test_upload(here: Here, file: Path) -> None:
    """AZ-12: what is empty is not sent; the tags of the provider's image win, and ours over all; the disk goes."""
    seen: list[int] = []
    with watched(lambda done, total: seen.append(done)):
        assert upload(here, file) == "fedora-1"
    assert here.calls("pages.put") == 2
    with here.simulator.cloud() as cloud:
        assert here.simulator.application.arm.uploads.content("fedora-1", len(CONTENT)) == CONTENT
        image = cloud.resources.get("images", "fedora-1")
        assert image.tags == {**METADATA, "release": "40"}
        profile = image.properties["storageProfile"]
        assert (image.properties["hyperVGeneration"], profile["zoneResilient"]) == ("V2", True)
        assert (profile["osDisk"]["osType"], profile["osDisk"]["osState"]) == ("Linux", "Generalized")
    assert (left(here), max(seen)) == ((0, 1), len(CONTENT))


OPERATIONS = ("disks.put", "disks.begingetaccess", "pages.put", "disks.endgetaccess", "images.put", "operations.get")


@pytest.mark.parametrize(
    ("operation", "kind"),
    [*itertools.product(OPERATIONS[:5], ("drop", "503")), ("operations.get", "500"), ("diskOperations.get", "500")],
)
def test_answer_is_lost(here: Here, file: Path, operation: str, kind: str) -> None:
    """AZ-12: a call without an answer is made again."""
    after = operation != "disks.begingetaccess"
    here.simulator.change(errors=[ArmErrorRule(operation=operation, kind=kind, after=after, count=1)])
    assert upload(here, file) == "fedora-1"
    assert left(here) == (0, 1)


def test_what_ends_an_upload(here: Here, file: Path) -> None:
    """AZ-12, U-9: one that is not wanted leaves nothing; an image of another upload is not written over; and Azure may
    be away.
    """

    def not_wanted(done: int, total: int) -> None:
        raise UploadGivenUp("not wanted")

    with watched(not_wanted), pytest.raises(UploadGivenUp):
        upload(here, file)
    assert left(here) == (0, 0)
    with here.simulator.cloud() as cloud:
        cloud.add_image("fedora-1", {**METADATA, "nodepool_upload_id": "other"})
    with pytest.raises(ImageCreateException, match="of another upload"):
        upload(here, file)
    assert left(here) == (0, 1)
    here.simulator.change(errors=[ArmErrorRule(operation="disks.put", kind="503")])
    with pytest.raises(CloudAway):
        upload(here, file, nodepool_upload_id="other")


def test_upload_that_did_not_end(here: Here) -> None:
    """AZ-12, AZ-13, D-3: its disk is found by its tags, and deleted although it may still be written to."""
    with here.simulator.cloud() as cloud:
        disk = cloud.add_disk("fedora-1", METADATA)
        disk.properties["diskState"] = "ActiveUpload"
    (listed,) = [image for image in here.adapter.listImages() if not image.usable]
    assert (listed.id, dict(listed.metadata)) == ("fedora-1", METADATA)
    found = [resource for resource in here.adapter.listResources() if resource.type == "disk"]
    here.adapter.deleteResource(found[0])
    assert left(here) == (0, 0)
