# SPDX-License-Identifier: Apache-2.0
"""nodepool.zk.image_backup: what an import does while somebody else writes (reference/zookeeper 6.4)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from nodepool.exceptions import ZKConflict
from nodepool.zk import transactions
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.image_backup import export_images, import_images
from tests.support.image_znodes import IMAGES, ImageZnodes
from tests.support.pool_znodes import PoolZnodes

RECORD = json.dumps({"state": "ready", "state_time": 1.0})
BUILD = f"{IMAGES}/debian/builds/b1"


@pytest.fixture
def images(znodes: PoolZnodes) -> ImageZnodes:
    return ImageZnodes(znodes)


def upload(number: int) -> str:
    return f"{BUILD}/providers/lab/images/{number:010}"


@pytest.mark.parametrize("highest", [0, 1, 499, 500, 1203])
def test_later_uploads_get_higher_numbers(client: ZooKeeperClient, images: ImageZnodes, highest: int) -> None:
    """Exactly the next one where nothing was there; nothing of the way is left."""
    data = {BUILD: RECORD, upload(highest): RECORD}
    import_images(client, data)
    assert export_images(client) == data
    uploads = upload(0).rpartition("/")[0]
    later = images.kazoo.create(f"{uploads}/", sequence=True)
    # The imported one has used up a number itself.
    assert int(later.rpartition("/")[2]) == highest + 2


def test_numbers_that_are_used_up_already(client: ZooKeeperClient, images: ImageZnodes) -> None:
    uploads = upload(0).rpartition("/")[0]
    images.put("debian/builds/b1", RECORD.encode())
    images.kazoo.ensure_path(uploads)
    for _ in range(5):
        images.kazoo.delete(images.kazoo.create(f"{uploads}/", sequence=True))
    import_images(client, {BUILD: RECORD, upload(2): RECORD})
    assert images.kazoo.create(f"{uploads}/", sequence=True) == f"{uploads}/0000000006"


@pytest.mark.parametrize("before", [None, b'{"state": "failed"}'])
@pytest.mark.parametrize("meanwhile", [b'{"state": "building"}', RECORD.encode()])
def test_somebody_writes_meanwhile(
    client: ZooKeeperClient,
    images: ImageZnodes,
    monkeypatch: pytest.MonkeyPatch,
    before: bytes | None,
    meanwhile: bytes,
) -> None:
    """What somebody else has just written is not overwritten; the same as in the export is fine."""
    if before is not None:
        images.put("debian/builds/b1", before)
    read = transactions.read_data

    def read_and_be_late(reader: ZooKeeperClient, paths: Any) -> Iterator[Any]:
        found = list(read(reader, paths))
        monkeypatch.setattr(transactions, "read_data", read)
        images.put("debian/builds/b1", meanwhile)
        return iter(found)

    monkeypatch.setattr(transactions, "read_data", read_and_be_late)
    if meanwhile == RECORD.encode():
        import_images(client, {BUILD: RECORD}, replace=True)
    else:
        with pytest.raises(ZKConflict, match="changed meanwhile"):
            import_images(client, {BUILD: RECORD}, replace=True)
    assert images.kazoo.get(BUILD)[0] == meanwhile
