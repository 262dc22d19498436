# SPDX-License-Identifier: Apache-2.0
"""nodepool.zk.caches: where images stand in ZooKeeper (reference/zookeeper 2)."""

from __future__ import annotations

import pytest

from nodepool.zk import caches
from nodepool.zk.caches import Kind

ROOT = "/nodepool/images/debian"


@pytest.mark.parametrize(
    ("path", "expected", "kind"),
    [
        (caches.image("debian"), ROOT, Kind.IMAGE),
        (caches.pause("debian"), f"{ROOT}/pause", Kind.PAUSE),
        (caches.build_request("debian"), f"{ROOT}/request-build", Kind.REQUEST),
        (caches.builds("debian"), f"{ROOT}/builds", Kind.BUILDS),
        (caches.build_lock("debian"), f"{ROOT}/builds/lock", Kind.LOCK),
        (caches.build("debian", "b1"), f"{ROOT}/builds/b1", Kind.BUILD),
        (caches.build_id_lock("debian", "b1"), f"{ROOT}/builds/b1/lock", Kind.LOCK),
        (caches.providers("debian", "b1"), f"{ROOT}/builds/b1/providers", Kind.PROVIDERS),
        (caches.provider("debian", "b1", "cloud"), f"{ROOT}/builds/b1/providers/cloud", Kind.PROVIDER),
        (caches.uploads("debian", "b1", "cloud"), f"{ROOT}/builds/b1/providers/cloud/images", Kind.UPLOADS),
        (caches.upload_lock("debian", "b1", "cloud"), f"{ROOT}/builds/b1/providers/cloud/images/lock", Kind.LOCK),
        (caches.upload("debian", "b1", "cloud", "1"), f"{ROOT}/builds/b1/providers/cloud/images/1", Kind.UPLOAD),
        (
            caches.upload_id_lock("debian", "b1", "cloud", "1"),
            f"{ROOT}/builds/b1/providers/cloud/images/1/lock",
            Kind.LOCK,
        ),
        (f"{caches.build_lock('debian')}/x__lock__1", f"{ROOT}/builds/lock/x__lock__1", Kind.CONTENDER),
        (f"{caches.pause('debian')}/x", f"{ROOT}/pause/x", Kind.OTHER),
        (f"{caches.build('debian', 'b1')}/x/y", f"{ROOT}/builds/b1/x/y", Kind.OTHER),
        (caches.IMAGES, "/nodepool/images", Kind.ROOT),
    ],
)
def test_paths(path: str, expected: str, kind: Kind) -> None:
    """An image, build or provider may itself be called as one of the fixed names."""
    assert path == expected
    assert caches.kind(caches.parts(path)) is kind


def test_names_that_are_fixed_elsewhere() -> None:
    """A provider may be called "lock" or "images"."""
    for name in ("lock", "images", "builds"):
        path = caches.upload("builds", "providers", name, "1")
        assert caches.kind(caches.parts(path)) is Kind.UPLOAD
