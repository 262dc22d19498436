# SPDX-License-Identifier: Apache-2.0
"""Uploads to the simulated Cloud Storage, and images that are made of them."""

from __future__ import annotations

import gzip
import io
import tarfile
from typing import Any

import pytest
import requests

from nodepool.testing.gce.checksums import crc32c, md5
from nodepool.testing.gce.cloud import BUCKET
from nodepool.testing.gce.images import disk_of
from nodepool.testing.gce.objects import PIECE_BYTES
from tests.unit.testing.gce.conftest import Caller

SIZE = PIECE_BYTES * 3 + 10
DATA = bytes(range(251)) * (SIZE // 251 + 1)
DATA = DATA[:SIZE]
MIB = 1024 * 1024


def begin(caller: Caller, **document: Any) -> str:
    """Begins an upload of ``o``; returns its address."""
    where = f"{caller.simulator.url}/upload/storage/v1/b/{BUCKET}/o"
    query = {"uploadType": "resumable", "name": "o"}
    with caller.session.post(where, params=query, json=document) as answer:
        assert answer.status_code == 200, answer.text
        return str(answer.headers["Location"])


def send(caller: Caller, address: str, first: int, data: bytes, total: int | str = "*", **headers: str) -> Any:
    """One piece; status, what is kept, and the object."""
    wanted = f"bytes {first}-{first + len(data) - 1}/{total}" if data else f"bytes */{total}"
    with caller.session.put(address, data=data, headers={"Content-Range": wanted, **headers}) as answer:
        return answer.status_code, answer.headers.get("Range"), answer.json() if answer.status_code != 308 else None


def test_pieces(caller: Caller) -> None:
    """Whole pieces are kept, 308 tells how much; the last one makes the object, and may be asked for again."""
    address = begin(caller, metadata={"nodepool_build_id": "1"}, md5Hash=md5(DATA), crc32c=crc32c(DATA))
    assert send(caller, address, 0, b"", SIZE)[:2] == (308, None)
    assert send(caller, address, 0, DATA[: PIECE_BYTES + 7])[:2] == (308, f"bytes=0-{PIECE_BYTES - 1}")
    assert send(caller, address, 0, b"")[:2] == (308, f"bytes=0-{PIECE_BYTES - 1}")
    status, _kept, made = send(caller, address, PIECE_BYTES, DATA[PIECE_BYTES:], SIZE)
    assert (status, made["size"], made["md5Hash"]) == (200, str(SIZE), md5(DATA))
    assert send(caller, address, 0, b"", SIZE)[2] == made
    where = f"{caller.simulator.url}/storage/v1/b/{BUCKET}/o"
    with caller.session.get(f"{where}/o", params={"fields": "size,metadata"}) as answer:
        assert answer.json() == {"size": str(SIZE), "metadata": {"nodepool_build_id": "1"}}
    with caller.session.get(f"{where}/o", params={"alt": "media"}) as answer:
        assert answer.content == DATA
    with caller.session.get(where, params={"prefix": "o"}) as answer:
        assert [entry["name"] for entry in answer.json()["items"]] == ["o"]
    assert [caller.session.delete(f"{where}/o").status_code for _ in range(2)] == [204, 404]


@pytest.mark.parametrize("announced", [{"md5Hash": md5(b"x")}, {"crc32c": crc32c(b"x")}])
def test_other_checksum(caller: Caller, announced: dict[str, str]) -> None:
    status, _kept, content = send(caller, begin(caller, **announced), 0, DATA, SIZE)
    assert (status, content["error"]["errors"][0]["reason"]) == (400, "invalid")
    status, _kept, _content = send(caller, begin(caller), 0, DATA, SIZE, **{"X-Goog-Hash": f"md5={md5(b'x')}"})
    assert status == 400
    assert caller.simulator.state()["contents"]["objects"] == 0


def test_broken_off(caller: Caller) -> None:
    """The connection ends in the middle of a piece; a question tells what has arrived."""
    address = begin(caller)
    caller.simulator.change(upload_cut_rate=1.0)
    with pytest.raises(requests.ConnectionError):
        send(caller, address, 0, DATA[: PIECE_BYTES * 2])
    caller.simulator.change(upload_cut_rate=0.0)
    assert send(caller, address, 0, b"")[:2] == (308, f"bytes=0-{PIECE_BYTES - 1}")
    caller.simulator.change(upload_short_rate=1.0)
    kept = send(caller, address, PIECE_BYTES, DATA[PIECE_BYTES:], SIZE)
    assert kept[:2] == (308, f"bytes=0-{PIECE_BYTES * 2 - 1}")
    caller.simulator.change(upload_short_rate=0.0)
    # What is there already is not taken twice.
    assert send(caller, address, PIECE_BYTES, DATA[PIECE_BYTES:], SIZE)[0] == 200
    with caller.simulator.cloud() as cloud:
        assert cloud.objects.content(BUCKET, "o") == DATA


def test_bad_pieces(caller: Caller) -> None:
    address = begin(caller)
    assert send(caller, address, 5, DATA)[0] == 400
    with caller.session.put(address, data=b"abc", headers={"Content-Range": "bytes 0-7/8"}) as answer:
        assert answer.status_code == 400
    assert caller.session.delete(address).status_code == 499
    assert send(caller, address, 0, DATA)[0] == 410
    where = f"{caller.simulator.url}/upload/storage/v1/b/other/o"
    with caller.session.post(where, params={"uploadType": "resumable", "name": "o"}, json={}) as answer:
        assert answer.status_code == 404


def archive(name: str = "disk.raw", size: int = MIB) -> bytes:
    """A disk as Compute Engine wants it."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", format=tarfile.GNU_FORMAT) as made:
        entry = tarfile.TarInfo(name)
        entry.size = size
        made.addfile(entry, io.BytesIO(bytes(size)))
    return packed.getvalue()


def insert_image(caller: Caller, content: bytes, name: str = "built") -> tuple[int, Any]:
    with caller.simulator.cloud() as cloud:
        cloud.objects.put(BUCKET, "disk.tar.gz", content, {})
    source = f"https://storage.googleapis.com/{BUCKET}/disk.tar.gz"
    body = {"name": name, "family": "ours", "labels": {"a": "b"}, "rawDisk": {"source": source}}
    return caller.call("POST", "global/images", body)


def test_image(caller: Caller) -> None:
    """PENDING, then READY; the newest of its family; it boots, and goes."""
    caller.simulator.change(disk_unit_bytes=MIB)
    status, operation = insert_image(caller, archive())
    assert (status, operation["status"]) == (200, "RUNNING")
    assert caller.get("global/images/built")["status"] == "PENDING"
    assert caller.call("GET", "global/images/family/ours")[0] == 404
    caller.clock.pass_seconds(5.0)
    assert caller.get(f"global/operations/{operation['name']}")["status"] == "DONE"
    image = caller.get("global/images/family/ours")
    assert (image["name"], image["status"], image["diskSizeGb"], image["labels"]) == ("built", "READY", "1", {"a": "b"})
    assert insert_image(caller, archive())[0] == 409
    insert_image(caller, archive(), "newer")
    caller.clock.pass_seconds(5.0)
    assert caller.get("global/images/family/ours")["name"] == "newer"
    disk = {"sourceImage": "global/images/family/ours"}
    caller.insert("np1", disks=[{"boot": True, "autoDelete": True, "initializeParams": disk}])
    assert caller.get("zones/us-central1-a/disks/np1")["sourceImage"].endswith("/newer")
    assert caller.call("DELETE", "global/images/newer")[0] == 200
    caller.clock.pass_seconds(5.0)
    assert caller.call("DELETE", "global/images/newer")[0] == 404
    assert caller.get("global/images/family/ours")["name"] == "built"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (archive("image.raw"), "first file is 'image.raw'"),
        (archive(size=512), "not a multiple"),
        (archive(size=0), "is empty"),
        (b"no gzip", "it is no gzip"),
        (gzip.compress(b"no tar" * 1000), "it is no tar"),
    ],
    ids=["other file", "not a multiple", "empty", "no gzip", "no tar"],
)
def test_images_that_fail(caller: Caller, content: bytes, why: str) -> None:
    caller.simulator.change(disk_unit_bytes=MIB)
    status, operation = insert_image(caller, content)
    assert status == 200
    caller.clock.pass_seconds(5.0)
    (error,) = caller.get(f"global/operations/{operation['name']}")["error"]["errors"]
    assert why in error["message"]
    assert caller.call("GET", "global/images/built")[0] == 404


def test_image_of_nothing(caller: Caller) -> None:
    body = {"name": "built", "rawDisk": {"source": f"https://storage.googleapis.com/{BUCKET}/absent"}}
    status, content = caller.call("POST", "global/images", body)
    assert (status, content["error"]["errors"][0]["reason"]) == (400, "invalid")


def test_what_a_disk_holds() -> None:
    assert disk_of(archive()) == bytes(MIB)


@pytest.mark.parametrize(("data", "value"), [(b"", "AAAAAA=="), (b"123456789", "4waSgw=="), (bytes(32), "ipE2qg==")])
def test_crc32c(data: bytes, value: str) -> None:
    """The values of RFC 3720, B.4."""
    assert crc32c(data) == value
