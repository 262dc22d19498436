# SPDX-License-Identifier: Apache-2.0
"""``nodepool-builder`` as a process beside a cloud: uploads, deaths, and what is left (rules U, R)."""

from __future__ import annotations

import hashlib
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nodepool.driver.fake.cloud import USABLE, FakeImage
from simulators.example_cloud import CLOUD_IMAGE, ExampleCloud
from tests.support.fake_builder import IMAGE, FakeBuilder
from tests.support.pool_znodes import PoolZnodes
from tests.support.wait import wait_for
from tests.support.zookeeper import ZooKeeperServer

Make = Callable[..., FakeBuilder]


@pytest.fixture
def cloud() -> Iterator[ExampleCloud]:
    with ExampleCloud() as cloud:
        yield cloud


@pytest.fixture
def make(
    tmp_path: Path, zookeeper: ZooKeeperServer, chroot: str, znodes: PoolZnodes, cloud: ExampleCloud
) -> Iterator[Make]:
    """Makes builders that upload to the cloud: ``make("builder")``; one of the same name has the same disk."""
    made: list[FakeBuilder] = []

    def builder(name: str = "builder", *options: str, **section: Any) -> FakeBuilder:
        extra = {"providers": [provider(cloud, **section)]}
        images = {IMAGE: {"rebuild-age": 86400}}
        made.append(
            FakeBuilder(
                tmp_path / name, zookeeper, chroot, znodes, *options, images=images, extra=extra, session_seconds=3
            )
        )
        return made[-1]

    yield builder
    for process in made:
        process.end()


def provider(cloud: ExampleCloud, **section: Any) -> dict[str, Any]:
    return {
        "name": "cloud",
        "driver": "example",
        "url": cloud.url,
        "rate": 0,
        "diskimages": [{"name": IMAGE}],
        "pools": [],
        **section,
    }


def uploads(builder: FakeBuilder) -> dict[tuple[str, str], dict[str, Any]]:
    """Build and number -> record of each upload; those that go just now are left out."""
    znodes, found = builder.znodes, {}
    for build_id in builder.builds():
        root = f"/nodepool/images/{IMAGE}/builds/{build_id}/providers/cloud/images"
        for number in znodes.children(root):
            record = None if number == "lock" else znodes.read(f"{root}/{number}")
            if record is not None:
                found[build_id, number] = record
    return found


def ours(cloud: ExampleCloud) -> list[FakeImage]:
    return [image for image in cloud.images.images() if image.name != CLOUD_IMAGE]


def uploaded(builder: FakeBuilder, cloud: ExampleCloud) -> FakeImage:
    """Wait until there is one upload, ready, with its image and no other in the cloud."""

    def look() -> FakeImage:
        assert builder.running, builder.log_text()
        # The record of one that was abandoned stays for a minute more.
        records = [record for record in uploads(builder).values() if record["state"] != "deleting"]
        images = ours(cloud)
        assert len(records) == len(images) == 1
        record, image = records[0], images[0]
        assert (record["state"], record["external_id"], image.status) == ("ready", image.id, USABLE)
        return image

    return wait_for("it is uploaded", look)


def test_from_the_build_to_the_cloud(make: Make, cloud: ExampleCloud) -> None:
    """U-1, U-5, R-11: built, uploaded as it is on the disk; taken out of the configuration it is gone everywhere."""
    builder = make()
    builder.start()
    image = uploaded(builder, cloud)
    ((build_id, _),) = uploads(builder)
    data = (builder.images_dir / f"{IMAGE}-{build_id}.qcow2").read_bytes()
    assert (image.size, image.sha256) == (len(data), hashlib.sha256(data).hexdigest())
    builder.extra["providers"] = [provider(cloud, diskimages=[])]
    builder.configure({})
    wait_for("its records are gone", lambda: not builder.builds())
    assert ours(cloud) == []
    wait_for("its files are gone", lambda: builder.files() <= {"builder_id.txt", ".builds"})


def test_builder_dies_while_it_uploads(make: Make, cloud: ExampleCloud) -> None:
    """R-4: what the upload has left in the cloud is deleted by the next builder on that disk, and it is made anew."""
    cloud.images.set(upload_seconds=300)
    builder = make()
    builder.start()
    wait_for("the upload runs", lambda: cloud.images.calls["upload"] == 1)
    (left,) = ours(cloud)
    builder.kill()
    cloud.images.set(upload_seconds=0)
    builder.start()
    image = uploaded(builder, cloud)
    assert image.id != left.id


def test_stop_while_it_uploads(make: Make, cloud: ExampleCloud) -> None:
    """U-11: the upload is not waited for; the next builder cleans up."""
    cloud.images.set(upload_seconds=300)
    builder = make()
    builder.start()
    wait_for("the upload runs", lambda: cloud.images.calls["upload"] == 1)
    assert builder.stop(signal.SIGTERM, seconds=60) == 0
    cloud.images.set(upload_seconds=0)
    builder.start()
    uploaded(builder, cloud)


def test_faults_of_the_cloud(make: Make, cloud: ExampleCloud) -> None:
    """R-4, U-14: an answer is lost, and an image arrives corrupted and cannot be deleted; nothing is left."""
    cloud.images.set(lost_images=1, corrupted_uploads=1, refused_deletions=2)
    builder = make()
    builder.start()
    wait_for("both have happened", lambda: cloud.images.calls["create"] >= 4)
    uploaded(builder, cloud)


def test_two_builders(make: Make, cloud: ExampleCloud) -> None:
    """U-1, U-2, U-10: an image is built and uploaded by one of them; a build of the other follows it."""
    builders = [make(f"builder-{number}") for number in range(2)]
    for builder in builders:
        builder.start()
    uploaded(builders[0], cloud)
    for count in (2, 3):
        builders[0].request()
        wait_for("there is another upload", lambda number=count: cloud.images.calls["create"] == number + 1)  # type: ignore[misc]
        wait_for("nobody works", lambda: not [one for one in uploads(builders[0]).values() if one["state"] != "ready"])
    wait_for("two are kept", lambda: len(ours(cloud)) == len(uploads(builders[0])) == 2)
    names = {build_id for build_id, _ in uploads(builders[0])}

    def files() -> set[str]:
        return {name for builder in builders for name in builder.files() if name.endswith(".qcow2")}

    wait_for("files of others are gone", lambda: files() == {f"{IMAGE}-{build_id}.qcow2" for build_id in names})
