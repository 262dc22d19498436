# SPDX-License-Identifier: Apache-2.0
"""nodepool.zk.image_paths: where images stand in ZooKeeper (reference/zookeeper 2)."""

from __future__ import annotations

import pytest

from nodepool.zk import image_paths
from nodepool.zk.image_paths import Kind

ROOT = "/nodepool/images/debian"


@pytest.mark.parametrize(
    ("path", "expected", "kind"),
    [
        (image_paths.image("debian"), ROOT, Kind.IMAGE),
        (image_paths.pause("debian"), f"{ROOT}/pause", Kind.PAUSE),
        (image_paths.build_request("debian"), f"{ROOT}/request-build", Kind.REQUEST),
        (image_paths.builds("debian"), f"{ROOT}/builds", Kind.BUILDS),
        (image_paths.build_lock("debian"), f"{ROOT}/builds/lock", Kind.LOCK),
        (image_paths.build("debian", "b1"), f"{ROOT}/builds/b1", Kind.BUILD),
        (image_paths.build_id_lock("debian", "b1"), f"{ROOT}/builds/b1/lock", Kind.LOCK),
        (image_paths.providers("debian", "b1"), f"{ROOT}/builds/b1/providers", Kind.PROVIDERS),
        (image_paths.provider("debian", "b1", "cloud"), f"{ROOT}/builds/b1/providers/cloud", Kind.PROVIDER),
        (image_paths.uploads("debian", "b1", "cloud"), f"{ROOT}/builds/b1/providers/cloud/images", Kind.UPLOADS),
        (image_paths.upload_lock("debian", "b1", "cloud"), f"{ROOT}/builds/b1/providers/cloud/images/lock", Kind.LOCK),
        (image_paths.upload("debian", "b1", "cloud", "1"), f"{ROOT}/builds/b1/providers/cloud/images/1", Kind.UPLOAD),
        (
            image_paths.upload_id_lock("debian", "b1", "cloud", "1"),
            f"{ROOT}/builds/b1/providers/cloud/images/1/lock",
            Kind.LOCK,
        ),
        (f"{image_paths.build_lock('debian')}/x__lock__1", f"{ROOT}/builds/lock/x__lock__1", Kind.CONTENDER),
        (f"{image_paths.pause('debian')}/x", f"{ROOT}/pause/x", Kind.OTHER),
        (f"{image_paths.build('debian', 'b1')}/x/y", f"{ROOT}/builds/b1/x/y", Kind.OTHER),
        (image_paths.IMAGES, "/nodepool/images", Kind.ROOT),
    ],
)
def test_paths(path: str, expected: str, kind: Kind) -> None:
    """An image, build or provider may itself be called as one of the fixed names."""
    assert path == expected
    assert image_paths.kind(image_paths.parts(path)) is kind


def test_names_that_are_fixed_elsewhere() -> None:
    """A provider may be called "lock" or "images"."""
    for name in ("lock", "images", "builds"):
        path = image_paths.upload("builds", "providers", name, "1")
        assert image_paths.kind(image_paths.parts(path)) is Kind.UPLOAD
