# SPDX-License-Identifier: Apache-2.0
"""Builds, uploads and pauses of images as one JSON object, and back (reference/zookeeper 6.4)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from nodepool.exceptions import ZKException
from nodepool.zk import multi_read, paths
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.image_store import ImageStore
from nodepool.zk.transactions import ensure_path

_PATH: Final = re.compile(
    rf"{paths.IMAGES}/[^/]+/(?:pause|builds/(?!{paths.LOCK}\b)[^/]+(?P<uploads>/providers/[^/]+/images/(?P<number>\d+))?)"
)


def export_images(client: ZooKeeperClient, images: ImageStore) -> dict[str, str]:
    """Path of each znode -> what is stored there; '' for a pause. Blocks for round trips."""
    wanted = list(_znodes(images))
    found = multi_read.read_data(client, wanted)
    return {
        path: "" if path.endswith("/pause") else znode[0].decode(errors="replace")
        for path, znode in zip(wanted, found, strict=True)
        if znode is not None
    }


def _znodes(images: ImageStore) -> Iterator[str]:
    for image in images.image_names():
        root = f"{paths.IMAGES}/{image}"
        yield f"{root}/pause"
        for build in images.build_ids(image):
            yield f"{root}/builds/{build}"
            for provider in images.upload_providers(image, build):
                for upload in images.upload_ids_of(image, build, provider):
                    yield f"{root}/builds/{build}/providers/{provider}/images/{upload}"


def import_images(client: ZooKeeperClient, data: Mapping[str, str]) -> None:
    """Write what `export_images` gave; what is there and not in it stays. Blocks for round trips.

    No locks are taken: nobody else may write images meanwhile. Uploads that are made later get higher numbers.

    :raises ZKException: a path that is none of image data; nothing was written.
    """
    highest: dict[str, int] = {}
    for path in data:
        parts = _PATH.fullmatch(path)
        if parts is None:
            raise ZKException(f"{path!r} is no image, build or upload")
        if parts["uploads"]:
            parent = path.rpartition("/")[0]
            highest[parent] = max(highest.get(parent, 0), int(parts["number"]))
    for parent, number in highest.items():
        _use_up_numbers(client, parent, number)
    kazoo = client.kazoo
    for path, value in data.items():
        ensure_path(client, path)
        kazoo.retry(kazoo.set, path, value.encode())


def _use_up_numbers(client: ZooKeeperClient, parent: str, highest: int) -> None:
    """ZooKeeper counts by itself: make and delete znodes until it is past the highest number."""
    ensure_path(client, parent)
    kazoo = client.kazoo
    number = -1
    while number < highest:
        # Not tried again by itself: if the answer were lost, an empty upload would stay.
        made = str(kazoo.create(f"{parent}/", sequence=True))
        number = int(made.rpartition("/")[2])
        # One that is gone is fine: the answer to the first attempt may have been lost.
        kazoo.retry(kazoo.delete, made, recursive=True)
