# SPDX-License-Identifier: Apache-2.0
"""`CosBucket`: our objects in a bucket of Cloud Object Storage, through which images are imported (IV-9).

It speaks the S3 API, with the token of IAM instead of a signature:
https://cloud.ibm.com/docs/cloud-object-storage?topic=cloud-object-storage-compatibility-api.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import urllib.parse
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from nodepool.driver.framework.cloud_errors import CloudAway, CloudNotFound
from nodepool.driver.framework.http.rest_calls import RestApi, RestCalls
from nodepool.driver.framework.parts_upload import PartsUpload, StoredPart
from nodepool.driver.framework.token_bucket import BucketSize
from nodepool.driver.ibmvpc.client import MOST_PAGES
from nodepool.driver.ibmvpc.errors import IbmError, meaning

if TYPE_CHECKING:
    from nodepool.driver.framework.http.plain_http import Body, HttpAnswer, PlainHttp
    from nodepool.driver.framework.http.rest_calls import RestAnswer, RestLogin

CALL_SECONDS: Final = 45.0
PART_SECONDS: Final = 120.0
#: The one class of calls: those to the bucket have no limit of their own.
_KIND: Final = "object storage"


class CosAnswers(RestApi):
    """What the answers mean: errors are XML with ``Code`` and ``Message``."""

    def throttled(self, answer: HttpAnswer) -> bool:
        return (answer.status in (429, 503) and b"SlowDown" in answer.content) or answer.status == 429

    def error(self, head: str, answer: HttpAnswer) -> Exception:
        try:
            data = _tree(answer.content)
        except ElementTree.ParseError:
            data = None
        code = "" if data is None else data.findtext("Code", "")
        message = "" if data is None else data.findtext("Message", "")
        return meaning(head, [IbmError(code, message)] if code else [], answer.status)


class CosBucket:
    """One bucket. All methods block; any thread may call them. They raise what
    `nodepool.driver.framework.cloud_errors` has.

    :param endpoint: of the region, such as ``https://s3.us-south.cloud-object-storage.appdomain.cloud``.
    """

    def __init__(self, provider: str, http: PlainHttp, login: RestLogin, endpoint: str, bucket: str) -> None:
        base = endpoint.rstrip("/") if "://" in endpoint else f"https://{endpoint.rstrip('/')}"
        self.name = bucket
        self._url = f"{base}/{urllib.parse.quote(bucket, safe='')}"
        self.calls = RestCalls(provider, http, CosAnswers(), login, {}, BucketSize(1, 0))

    def region(self) -> str:
        """Where it is, as addresses of objects name it: the location without the class of storage."""
        found = self._xml(self._call("GET", "", "reading the bucket", {"location": ""}))
        return (found.text or "").strip().rpartition("-")[0]

    # -- an upload in parts --

    def begin(self, key: str) -> str:
        """Begin an upload; returns its id."""
        found = self._xml(self._call("POST", key, "beginning an upload", {"uploads": ""}))
        return found.findtext("UploadId", "")

    def put_part(self, upload: PartsUpload, number: int, data: bytes) -> StoredPart:
        """Write a part. The bucket compares its checksum.

        :param number: from 1.
        """
        digest = hashlib.md5(data, usedforsecurity=False)
        headers = {
            "Content-MD5": base64.b64encode(digest.digest()).decode(),
            "Content-Type": "application/octet-stream",
        }
        query = {"partNumber": str(number), "uploadId": upload.upload_id}
        self._call("PUT", upload.key, "uploading a part", query, data, headers, PART_SECONDS)
        return StoredPart(number, digest.hexdigest(), len(data))

    def parts(self, upload: PartsUpload) -> dict[int, StoredPart]:
        """What is there of an upload, by number."""
        query, found = {"uploadId": upload.upload_id}, {}
        for _ in range(MOST_PAGES):
            data = self._xml(self._call("GET", upload.key, "listing the parts of an upload", query))
            for part in data.iter("Part"):
                number = int(part.findtext("PartNumber", "0"))
                found[number] = StoredPart(
                    number, part.findtext("ETag", "").strip('"'), int(part.findtext("Size", "0"))
                )
            if data.findtext("IsTruncated", "") != "true":
                return found
            query = {**query, "part-number-marker": data.findtext("NextPartNumberMarker", "")}
        raise self._endless()

    def complete(self, upload: PartsUpload, parts: Mapping[int, StoredPart]) -> None:
        """Make an object of the parts."""
        rows = "".join(
            f'<Part><PartNumber>{number}</PartNumber><ETag>"{escape(part.tag)}"</ETag></Part>'
            for number, part in sorted(parts.items())
        )
        body = f"<CompleteMultipartUpload>{rows}</CompleteMultipartUpload>".encode()
        query = {"uploadId": upload.upload_id}
        headers = {"Content-Type": "application/xml"}
        found = self._xml(self._call("POST", upload.key, "completing an upload", query, body, headers, PART_SECONDS))
        if found.tag == "Error":
            # The bucket answers before it knows.
            text = f"Provider {self.calls.provider}: completing an upload failed: {found.findtext('Code', '')}"
            raise CloudAway(text)

    def abort(self, upload: PartsUpload) -> None:
        """Delete the parts; an upload that is gone is no error."""
        with contextlib.suppress(CloudNotFound):
            self._call("DELETE", upload.key, "ending an upload", {"uploadId": upload.upload_id})

    def open_uploads(self, prefix: str) -> list[PartsUpload]:
        """Uploads that were not completed, of keys that begin so."""
        query, found = {"uploads": "", "prefix": prefix}, []
        for _ in range(MOST_PAGES):
            data = self._xml(self._call("GET", "", "listing uploads", query))
            for one in data.iter("Upload"):
                found.append(PartsUpload(one.findtext("Key", ""), one.findtext("UploadId", "")))
            if data.findtext("IsTruncated", "") != "true":
                return found
            marks = {"key-marker": "NextKeyMarker", "upload-id-marker": "NextUploadIdMarker"}
            query |= {name: data.findtext(told, "") for name, told in marks.items()}
        raise self._endless()

    # -- objects --

    def size(self, key: str) -> int:
        """Of an object, in bytes; raises CloudNotFound."""
        return int(self._call("HEAD", key, "reading an object").headers.get("Content-Length", "0"))

    def keys(self, prefix: str) -> Iterator[str]:
        """Of all objects whose keys begin so."""
        query = {"list-type": "2", "prefix": prefix}
        for _ in range(MOST_PAGES):
            data = self._xml(self._call("GET", "", "listing objects", query))
            yield from (one.findtext("Key", "") for one in data.iter("Contents"))
            if data.findtext("IsTruncated", "") != "true":
                return
            query["continuation-token"] = data.findtext("NextContinuationToken", "")
        raise self._endless()

    def delete(self, key: str) -> None:
        """Delete an object; one that is gone already is no error."""
        with contextlib.suppress(CloudNotFound):
            self._call("DELETE", key, "deleting an object")

    # -- inside --

    def _call(
        self,
        method: str,
        key: str,
        what: str,
        query: Mapping[str, str] | None = None,
        content: Body = None,
        headers: Mapping[str, str] | None = None,
        seconds: float = CALL_SECONDS,
    ) -> RestAnswer:
        url = f"{self._url}/{urllib.parse.quote(key)}" if key else self._url
        return self.calls.call(_KIND, method, url, what, content=content, query=query, headers=headers, seconds=seconds)

    def _xml(self, answer: RestAnswer) -> ElementTree.Element:
        data: Any = answer.data
        try:
            return _tree(data if isinstance(data, bytes) else b"")
        except ElementTree.ParseError:
            text = f"Provider {self.calls.provider}: the bucket's answer is not XML; is endpoint correct?"
            raise CloudAway(text) from None

    def _endless(self) -> CloudAway:
        return CloudAway(f"Provider {self.calls.provider}: a list of bucket {self.name} does not end")


def _tree(content: bytes) -> ElementTree.Element:
    """XML without its namespace. Raises ElementTree.ParseError."""
    root = ElementTree.fromstring(content)
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
    return root
