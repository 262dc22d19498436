# SPDX-License-Identifier: Apache-2.0
"""Buckets of Cloud Storage, their objects, and uploads that go on where they were broken off."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from simulators.base.messages import ApiError, Json, new_id
from simulators.gce.checksums import crc32c, md5

if TYPE_CHECKING:
    from simulators.gce.cloud import GceCore

#: Pieces of an upload, but for the last one, are kept up to a multiple of it.
PIECE_BYTES: Final = 256 * 1024


@dataclass
class UploadSession:
    """An upload that goes on."""

    bucket: str
    key: str
    document: Json
    data: bytearray = field(default_factory=bytearray)
    #: What became of it: the object, if it is over.
    made: Json | None = None


class ProjectBuckets:
    """All buckets of a project."""

    def __init__(self, core: GceCore, buckets: Iterable[str]) -> None:
        self._core = core
        self._buckets: dict[str, dict[str, tuple[bytes, Json]]] = {name: {} for name in buckets}
        self.sessions: dict[str, UploadSession] = {}
        self._generation = 1_700_000_000_000_000

    def bucket(self, name: str) -> dict[str, tuple[bytes, Json]]:
        """The objects of a bucket.

        :raises ApiError: 404.
        """
        found = self._buckets.get(name)
        if found is None:
            raise ApiError(404, "The specified bucket does not exist.", "notFound")
        return found

    def content(self, bucket: str, key: str) -> bytes | None:
        """The bytes of an object; None = there is none."""
        found = self._buckets.get(bucket, {}).get(key)
        return None if found is None else found[0]

    def get(self, bucket: str, key: str) -> tuple[bytes, Json]:
        """Bytes and document of an object.

        :raises ApiError: 404.
        """
        found = self.bucket(bucket).get(key)
        if found is None:
            raise ApiError(404, f"No such object: {bucket}/{key}", "notFound")
        return found

    def delete(self, bucket: str, key: str) -> None:
        """:raises ApiError: 404."""
        self.get(bucket, key)
        del self.bucket(bucket)[key]

    def count(self) -> int:
        return sum(len(objects) for objects in self._buckets.values())

    def put(self, bucket: str, key: str, data: bytes, given: Json) -> Json:
        """A whole object, if its checksums are those that were announced.

        :raises ApiError: 400, they are not.
        """
        digests = {"md5Hash": md5(data), "crc32c": crc32c(data)}
        for name, value in digests.items():
            if given.get(name, value) != value:
                text = f'Provided {name} "{given[name]}" doesn\'t match calculated {name} "{value}".'
                raise ApiError(400, text, "invalid")
        self._generation += 1000
        stamp = self._core.stamp()
        document: Json = {
            "kind": "storage#object",
            "id": f"{bucket}/{key}/{self._generation}",
            "selfLink": f"https://www.googleapis.com/storage/v1/b/{bucket}/o/{quote(key, safe='')}",
            "name": key,
            "bucket": bucket,
            "generation": str(self._generation),
            "metageneration": "1",
            "contentType": given.get("contentType", "application/octet-stream"),
            "storageClass": "STANDARD",
            "size": str(len(data)),
            "timeCreated": stamp,
            "updated": stamp,
            **digests,
        }
        if given.get("metadata"):
            document["metadata"] = dict(given["metadata"])
        self.bucket(bucket)[key] = (data, document)
        self._core.events["objects made"] += 1
        return document

    def begin(self, bucket: str, key: str, given: Json) -> str:
        """Begins an upload; returns its id.

        :raises ApiError: 404, there is no such bucket.
        """
        self.bucket(bucket)
        upload_id = new_id()
        self.sessions[upload_id] = UploadSession(bucket, key, given)
        return upload_id

    def session(self, upload_id: str) -> UploadSession:
        """An upload that goes on.

        :raises ApiError: 410, there is none.
        """
        found = self.sessions.get(upload_id)
        if found is None:
            raise ApiError(410, "The upload session is over or was never begun.", "uploadSessionGone")
        return found
