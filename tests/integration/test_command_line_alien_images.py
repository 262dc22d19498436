# SPDX-License-Identifier: Apache-2.0
"""``nodepool alien-image-list`` and ``image-upload``, with clouds in the configuration (reference/commands 2)."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from simulators.openstack import OpenStackSimulator
from tests.support.command_line import CommandLine, Result
from tests.support.image_znodes import ImageZnodes
from tests.support.pool_znodes import PoolZnodes

#: Ids of builds.
A, B = (letter * 32 for letter in "ab")
LISTED = "the images of provider {} cannot be listed"


@pytest.fixture
def images(znodes: PoolZnodes) -> ImageZnodes:
    return ImageZnodes(znodes)


@pytest.fixture
def in_cloud(simulator: OpenStackSimulator) -> Callable[..., str]:
    """Puts an image of a builder into the cloud; returns its id."""

    def add(build: str, number: int, provider: str) -> str:
        properties = {
            "nodepool_build_id": build,
            "nodepool_upload_id": f"{number:010}",
            "nodepool_provider_name": provider,
        }
        with simulator.cloud() as cloud:
            image = cloud.images.add_active(f"debian-{number}")
            image.update(properties)
            return str(image["id"])

    return add


def test_aliens(clouds: CommandLine, images: ImageZnodes, in_cloud: Callable[..., str]) -> None:
    """Rule D-3. Images of builders that have no record; each is listed for the provider that it was made for."""
    images.add_build("debian", A)
    images.add_upload("debian", A, "cloud-a", 1, external_id=in_cloud(A, 1, "cloud-a"))
    images.add_upload("debian", A, "cloud-a", 2, state="uploading", external_id=None)
    in_cloud(A, 2, "cloud-a")
    lost = in_cloud(B, 1, "cloud-a")
    others = in_cloud(A, 1, "cloud-b")
    result = clouds("alien-image-list", "cloud-a")
    assert (result.status, result.err) == (0, "")
    headers = [cell.strip() for cell in result.out.splitlines()[1].strip("|").split("|")]
    assert headers == ["Provider", "Name", "Image ID"]
    assert result.rows == [["cloud-a", "debian-1", lost]]
    assert json.loads(clouds("alien-image-list", "cloud-b", "--format", "json").out) == [
        {"provider": "cloud-b", "name": "debian-1", "image_id": others}
    ]


def test_a_cloud_that_is_away_does_not_hide_the_others(clouds: CommandLine, in_cloud: Callable[..., str]) -> None:
    lost = in_cloud(B, 1, "cloud-a")
    result = clouds("alien-image-list")
    assert result.status == 1
    assert result.rows == [["cloud-a", "debian-1", lost]]
    assert "cloud-c" in result.err
    assert "Traceback" not in result.err


@pytest.mark.parametrize(("name", "what"), [("lab", "has no images"), ("odd", "is not in the configuration")])
def test_provider_that_cannot_be_asked(clouds: CommandLine, name: str, what: str) -> None:
    text = f"provider {name} {what}; providers with images: cloud-a, cloud-b, cloud-c\n"
    assert clouds("alien-image-list", name) == Result(1, "", text)


class TestUploads:
    def test_how_far_each_provider_is(self, clouds: CommandLine, images: ImageZnodes) -> None:
        """Of the newest build; a provider whose uploads are paused is not asked about (P-2)."""
        images.add_build("debian", A)
        images.add_upload("debian", A, "cloud-a", state="failed")
        images.add_upload("debian", A, "cloud-a", 2, state="uploading")
        told = {"percent": 47.3, "bytes_per_second": 1024**2, "size": 3 * 1024**3}
        images.tell(uploads={f"debian/{A}/cloud-a/0000000002": told})
        result = clouds("image-upload", "debian")
        assert result == Result(0, "cloud-a:  47% of 3.0 GiB 1.0 MiB/s\ncloud-c: waiting\n", "")

    def test_wait(self, clouds: CommandLine, images: ImageZnodes) -> None:
        """Ends when all providers have the newest build, which needs no builder."""
        images.add_build("debian", A)
        images.add_upload("debian", A, "cloud-a")
        assert clouds("image-upload", "debian", "--provider", "cloud-a", "--wait") == Result(
            0, f"Build debian-{A} is ready in cloud-a\n", ""
        )
        text = "No builder is running: the uploads of debian wait for one\n"
        assert clouds("image-upload", "debian", "--wait") == Result(1, "", text)

    def test_end_of_waiting(self, clouds: CommandLine, images: ImageZnodes) -> None:
        images.add_builder()
        images.add_build("debian", A)
        process = clouds.start("image-upload", "debian", "--provider", "cloud-a", "--wait")
        assert process.stdout is not None
        assert process.stdout.readline() == "cloud-a: waiting\n"
        images.add_upload("debian", A, "cloud-a", state="uploading")
        assert process.stdout.readline() == "cloud-a: uploading\n"
        images.add_upload("debian", A, "cloud-a")
        out, err = process.communicate(timeout=60)
        assert (process.returncode, out, err) == (0, f"Build debian-{A} is ready in cloud-a\n", "")

    @pytest.mark.parametrize(
        ("arguments", "text"),
        [
            (["odd"], "no provider uses an image odd; images of providers: debian"),
            (
                ["debian", "--provider", "odd"],
                "provider odd does not use image debian; providers: cloud-a, cloud-b, cloud-c",
            ),
            (["debian", "--provider", "cloud-b"], "uploads of debian to cloud-b are paused in the configuration"),
        ],
    )
    def test_mistakes(self, clouds: CommandLine, arguments: list[str], text: str) -> None:
        assert clouds("image-upload", *arguments) == Result(1, "", f"{text}\n")
