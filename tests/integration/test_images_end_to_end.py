# SPDX-License-Identifier: Apache-2.0
"""How an image travels: built by a builder, uploaded to clouds, booted by a launcher, replaced, and removed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.image_place import FORMATS, IMAGE, ImagePlace
from tests.support.pool_znodes import PoolZnodes
from tests.support.wait import present, wait_for
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


def current_id(place: ImagePlace, provider: str = "cloud-a") -> str:
    """Id of the image that launchers boot from."""
    return str((present(place.image().current(provider)).record or {})["external_id"])


def test_built_uploaded_and_booted(place: ImagePlace) -> None:
    """B-1, U-1, U-4, D-1: from nothing; a label is ready as soon as its image is."""
    place.launch()
    builder = place.add_builder()
    builder.start()
    place.ready()
    assert place.boot() == current_id(place)
    for provider, image_format in FORMATS.items():
        upload = present(place.image().current(provider))
        stored = place.cloud_images(provider)[(upload.record or {})["external_id"]]
        keys = (stored["nodepool_build_id"], stored["nodepool_upload_id"], stored["nodepool_provider_name"])
        assert keys == (upload.build_id, upload.upload_id, provider)
        assert stored["disk_format"] == image_format
    assert builder.stop() == 0


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
