# SPDX-License-Identifier: Apache-2.0
"""`ObjectStore`: our objects in a bucket of S3, through which images are imported (AW-17, AW-20)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from nodepool.driver.aws import transport as t
from nodepool.driver.aws.errors import AwsNotFound
from nodepool.driver.aws.image_spec import object_tagging
from nodepool.driver.aws.transport import MOST_PAGES
from nodepool.driver.framework.cloud_errors import CloudAway
from nodepool.driver.framework.parts_upload import PartsUpload, StoredPart, crc32_of


class S3Object(NamedTuple):
    """An object.

    :param tag: its entity tag.
    :param crc32: over the checksums of its parts; "" = S3 does not say.
    """

    key: str
    size: int
    tag: str
    crc32: str


class ObjectStore:
    """One bucket: a `nodepool.driver.framework.parts_upload.PartsBucket`.

    All methods block; any thread may call them. They raise what `nodepool.driver.aws.errors` has.
    """

    def __init__(self, transport: t.AwsTransport, bucket: str) -> None:
        self.bucket = bucket
        #: Set when the provider ends.
        self.stopped = transport.stopped
        self._transport = transport

    # -- uploads in parts --

    def begin(self, key: str, tags: Mapping[str, str]) -> str:
        """Begin an upload; returns its id."""
        given = {"Key": key, "Tagging": object_tagging(tags), "ChecksumAlgorithm": "CRC32"}
        return str(self._call("CreateMultipartUpload", given)["UploadId"])

    def put_part(self, upload: PartsUpload, number: int, data: bytes) -> StoredPart:
        checksum = crc32_of(data)
        given = {**_named(upload), "PartNumber": number, "Body": data, "ChecksumCRC32": checksum}
        answer = self._call("UploadPart", given)
        return StoredPart(number, _plain(answer["ETag"]), len(data), checksum)

    def parts(self, upload: PartsUpload) -> dict[int, StoredPart]:
        found = {}
        for answer in self._pages("ListParts", _named(upload), {"PartNumberMarker": "NextPartNumberMarker"}):
            for part in answer.get("Parts") or ():
                number, checksum = part["PartNumber"], part.get("ChecksumCRC32", "")
                found[number] = StoredPart(number, _plain(part["ETag"]), part["Size"], checksum)
        return found

    def complete(self, upload: PartsUpload, parts: Mapping[int, StoredPart]) -> None:
        told = [
            {"PartNumber": number, "ETag": f'"{part.tag}"', **({"ChecksumCRC32": part.crc32} if part.crc32 else {})}
            for number, part in sorted(parts.items())
        ]
        self._call("CompleteMultipartUpload", {**_named(upload), "MultipartUpload": {"Parts": told}})

    def abort(self, upload: PartsUpload) -> None:
        with contextlib.suppress(AwsNotFound):
            self._call("AbortMultipartUpload", _named(upload))

    def open_uploads(self, prefix: str) -> Iterator[PartsUpload]:
        marks = {"KeyMarker": "NextKeyMarker", "UploadIdMarker": "NextUploadIdMarker"}
        for answer in self._pages("ListMultipartUploads", {"Prefix": prefix}, marks):
            yield from (PartsUpload(found["Key"], found["UploadId"]) for found in answer.get("Uploads") or ())

    # -- objects --

    def stored(self, key: str) -> S3Object:
        """An object; raises `CloudRefused` if there is none."""
        answer = self._call("HeadObject", {"Key": key, "ChecksumMode": "ENABLED"})
        return S3Object(key, answer["ContentLength"], _plain(answer["ETag"]), answer.get("ChecksumCRC32", ""))

    def delete(self, key: str) -> None:
        """Delete an object; one that is gone already is no error."""
        with contextlib.suppress(AwsNotFound):
            self._call("DeleteObject", {"Key": key})

    def keys(self, prefix: str) -> Iterator[str]:
        """Of all objects whose keys begin so."""
        for answer in self._pages("ListObjectsV2", {"Prefix": prefix}, {"ContinuationToken": "NextContinuationToken"}):
            yield from (found["Key"] for found in answer.get("Contents") or ())

    def _pages(self, operation: str, arguments: dict[str, Any], marks: Mapping[str, str]) -> Iterator[dict[str, Any]]:
        """The pages of a list; each is a call.

        :param marks: arguments for the next page, and where a page has them.
        """
        given = dict(arguments)
        for _ in range(MOST_PAGES):
            answer = self._call(operation, given)
            yield answer
            if not answer.get("IsTruncated"):
                return
            given |= {name: answer[told] for name, told in marks.items() if told in answer}
        raise CloudAway(f"Provider {self._transport.provider}: {operation} failed: the list does not end")

    def _call(self, operation: str, arguments: dict[str, Any]) -> dict[str, Any]:
        return self._transport.call("s3", t.STORE, operation, {"Bucket": self.bucket, **arguments})


def _named(upload: PartsUpload) -> dict[str, Any]:
    return {"Key": upload.key, "UploadId": upload.upload_id}


def _plain(tag: str) -> str:
    return tag.strip('"')
