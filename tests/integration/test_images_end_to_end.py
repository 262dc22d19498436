# SPDX-License-Identifier: Apache-2.0
"""How an image travels: built by a builder, uploaded to clouds, booted by a launcher, replaced, and removed."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command_line import CommandLine
from tests.support.image_place import FORMATS, IMAGE, ImagePlace
from tests.support.pool_znodes import PoolZnodes
from tests.support.wait import wait_for
from tests.support.zookeeper import ZooKeeperServer

EXTRA = "extra"


@pytest.fixture
def place(
    tmp_path: Path, zookeeper: ZooKeeperServer, chroot: str, znodes: PoolZnodes, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ImagePlace]:
    made = ImagePlace(tmp_path, zookeeper, chroot, znodes)
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(made.clouds_file))
    made.start()
    yield made
    made.stop()


@pytest.fixture
def nodepool(place: ImagePlace) -> CommandLine:
    """The command line, with the configuration of the first builder."""
    return CommandLine(place.directory / "builder0.yaml")


def current_id(place: ImagePlace, provider: str = "cloud-a") -> str:
    """Id of the image that launchers boot from."""
    upload = place.image().current(provider)
    assert upload is not None
    return str((upload.record or {})["external_id"])


def test_built_uploaded_and_booted(place: ImagePlace) -> None:
    """B-1, U-1, U-4, D-1: from nothing; a label is ready as soon as its image is."""
    place.launch()
    assert place.launcher is not None
    builder = place.add_builder()
    builder.start()
    place.ready()
    assert place.boot() == current_id(place)
    for provider, image_format in FORMATS.items():
        upload = place.image().current(provider)
        assert upload is not None
        stored = place.cloud_images(provider)[(upload.record or {})["external_id"]]
        keys = (stored["nodepool_build_id"], stored["nodepool_upload_id"], stored["nodepool_provider_name"])
        assert keys == (upload.build_id, upload.upload_id, provider)
        assert stored["disk_format"] == image_format
    assert builder.stop() == 0


def test_label_is_ready_at_once_after_the_upload(place: ImagePlace) -> None:
    """`labelReady` follows the record of the upload."""
    place.launch()
    assert place.launcher is not None
    provider = place.launcher.nodepool.providers.running["cloud-a"]
    label = place.launcher.nodepool.configuration.current.providers["cloud-a"].pools["main"].labels["small"]
    assert not provider.labelReady(label)
    place.add_builder().start()
    wait_for("an upload is ready", lambda: place.image().current("cloud-a"))
    wait_for("the label is ready", lambda: provider.labelReady(label), 1.0)


def test_a_new_build_replaces_an_older_one(place: ImagePlace) -> None:
    """R-1, R-2, R-6, R-9: two are kept; of a third one nothing is left, in no cloud and on no disk."""
    place.launch()
    place.add_builder().start()
    first = place.ready()[0].build_id
    place.records.request_build(IMAGE)
    place.ready(builds=2)
    assert place.boot() == current_id(place)
    assert len(place.image().builds) == 2
    place.records.request_build(IMAGE)

    def replaced() -> bool:
        builds = [build.build_id for build in place.image().builds]
        assert len(builds) == 2, builds
        assert first not in builds
        return True

    wait_for("the first build is gone", replaced, 60.0)
    place.ready(builds=2)
    assert not any(first in name for name in place.files())
    for provider in FORMATS:
        assert first not in [image["nodepool_build_id"] for image in place.cloud_images(provider).values()]
    assert not place.image().requested


def test_going_back_to_the_older_build(place: ImagePlace, nodepool: CommandLine) -> None:
    """`image-rollback`: launchers boot the one before; the newer one stays, and is not put in front again."""
    place.launch()
    place.add_builder().start()
    place.ready()
    older = current_id(place)
    place.records.request_build(IMAGE)
    place.ready(builds=2)
    newer = current_id(place)
    answer = nodepool("image-rollback", "cloud-a", IMAGE)
    assert answer.status == 0, answer.err
    assert current_id(place) == older
    wait_for("nodes are made of the older one", lambda: place.boot() == older)
    uploads = place.image().uploads("cloud-a", "ready")
    assert {(upload.record or {})["external_id"] for upload in uploads} == {older, newer}
    # The next build is used again.
    place.records.request_build(IMAGE)
    wait_for("a third image is current", lambda: current_id(place) not in (older, newer), 60.0)


def test_image_that_nobody_wants_any_more_is_gone_everywhere(place: ImagePlace) -> None:
    """R-3, R-11"""
    place.images = [IMAGE, EXTRA]
    builder = place.add_builder()
    builder.start()
    place.ready()
    place.ready(EXTRA)
    place.images = [IMAGE]
    place.configure()
    place.gone(EXTRA)
    place.ready()


def test_provider_that_does_not_use_an_image_any_more(place: ImagePlace) -> None:
    """R-3, R-12: gone in that cloud only; a provider that is not in the configuration keeps its images."""
    place.add_builder().start()
    place.ready()
    place.providers = ["cloud-a"]
    place.configure()
    place.records.request_build(IMAGE)
    place.ready(builds=2)
    assert len(place.cloud_images("cloud-b")) == 1


def test_files_are_on_one_of_two_builders(place: ImagePlace) -> None:
    """U-10, B-11: who has the files uploads them, also after a restart; the other one neither uploads nor builds."""
    place.providers = ["cloud-a"]
    place.image_settings["formats"] = list(FORMATS.values())
    first = place.add_builder()
    first.start()
    build = place.ready()[0].build_id
    second = place.add_builder()
    second.start()
    wait_for("both are registered", lambda: len(place.znodes.children("/nodepool/components/builder")) == 2)
    first.stop()
    place.providers = list(FORMATS)
    place.configure()
    assert place.files(1) == []
    first.start()
    assert {upload.build_id for upload in place.ready()} == {build}
    assert [one.build_id for one in place.image().builds] == [build]
    assert (place.files(1), len(place.files(0)) > 0) == ([], True)


def test_killed_in_the_middle_of_a_build(place: ImagePlace) -> None:
    """R-5, R-9: the build is done again; its record, files and processes go."""
    place.steer(seconds=(30.0, 30.0))
    builder = place.add_builder()
    builder.start()

    def building() -> str:
        builds = [build.build_id for build in place.image().builds if build.state == "building"]
        assert builds, "nothing is being built"
        return builds[0]

    lost = wait_for("the build begins", building)
    wait_for("there are files", lambda: place.files())
    builder.kill()
    place.steer()
    builder.start()
    place.ready()
    wait_for("its record is gone", lambda: lost not in [build.build_id for build in place.image().builds], 60.0)
    wait_for("its files are gone", lambda: not any(lost in name for name in place.files()), 60.0)


def test_a_corrupted_upload_is_never_ready(place: ImagePlace) -> None:
    """U-6, R-4: what arrived otherwise than it was sent becomes `failed`, is deleted, and sent again."""
    place.clouds["cloud-a"].change(image_uploads=[{"kind": "corrupt", "count": 1}])
    place.clouds["cloud-b"].change(image_uploads=[{"kind": "truncate", "after_bytes": 1000, "count": 1}])
    place.add_builder().start()
    place.ready()
    for provider in FORMATS:
        wait_for("one image is there", lambda p=provider: len(place.cloud_images(p)) == 1)  # type: ignore[misc]
    assert len(place.image().uploads()) >= 2


def test_sigterm_ends_a_build(place: ImagePlace) -> None:
    """Exit status 0, the record says `failed` or is gone, no process is left."""
    place.steer(seconds=(30.0, 30.0))
    builder = place.add_builder()
    builder.start()
    wait_for("the build begins", lambda: place.files())
    assert builder.stop(signal.SIGTERM, seconds=60) == 0
    assert [build.state for build in place.image().builds if build.state == "building"] == []
