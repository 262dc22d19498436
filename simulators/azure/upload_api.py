# SPDX-License-Identifier: Apache-2.0
"""Disks that are uploaded, page by page, and images that are made of them."""

from __future__ import annotations

import base64
import hashlib
import re
import secrets
from typing import TYPE_CHECKING, Final, Protocol

from simulators.azure import shapes
from simulators.azure.arm_ids import ArmPath
from simulators.azure.resources import ArmResource, base_url
from simulators.base.messages import Answer, ApiError, Json, Request

if TYPE_CHECKING:
    from simulators.azure.cloud import Subscription

UPLOAD_PATH: Final = "/upload/"
#: As counters and error rules call it.
PAGES: Final = "pages.put"
_RANGE: Final = re.compile(r"bytes=(\d+)-(\d+)")
_PAGE_BYTES: Final = 512
_MOST_BYTES: Final = 4 * 1024 * 1024


class Accepted(Protocol):
    """Answers with an operation."""

    def __call__(self, request: Request, operation: str, status: int = ..., content: Json | None = ...) -> Answer: ...


class UploadApi:
    """:param accepted: makes the answer to a call that began an operation."""

    def __init__(self, cloud: Subscription, accepted: Accepted) -> None:
        self.cloud = cloud
        self._accepted = accepted
        #: Name of the disk by the secret of its address.
        self._open: dict[str, str] = {}
        #: Ranges of pages that were written, by name of the disk, with their content.
        self.pages: dict[str, dict[int, bytes]] = {}
        #: Names of images that the next GET does not find.
        self.late: set[str] = set()

    def _end(self, operation: str, error: Json | None = None, output: Json | None = None) -> None:
        """In a while."""
        core = self.cloud.core
        core.after(core.knobs.boot_seconds, "image", lambda: self.cloud.operations.end(operation, error, output))

    def put_disk(self, request: Request, path: ArmPath) -> Answer:
        body = request.json()
        data = (body.get("properties") or {}).get("creationData") or {}
        size = data.get("uploadSizeBytes")
        if data.get("createOption") != "Upload" or not isinstance(size, int) or size % _PAGE_BYTES:
            raise ApiError(400, "Only disks that are uploaded are known, of whole pages.", "InvalidParameter")
        if (size - _PAGE_BYTES) % (1024 * 1024):
            raise ApiError(
                400, f"uploadSizeBytes {size} is not a whole number of MiB and a footer.", "InvalidParameter"
            )
        if self.cloud.resources.find("disks", path.name) is None:
            properties = {
                **body["properties"],
                "provisioningState": "Succeeded",
                "diskState": "ReadyToUpload",
                **shapes.disk_properties(self.cloud.core.stamp()),
            }
            sku = {"name": "Premium_LRS", "tier": "Premium", **(body.get("sku") or {})}
            self.cloud.resources.add("disks", path.name, properties, body.get("tags"), sku=sku)
            self.cloud.core.events["disks made"] += 1
        disk = self.cloud.resources.get("disks", path.name)
        operation = self.cloud.operations.begin(disk.document["id"])
        self._end(operation, output=disk.document)
        return self._accepted(request, operation, 202, shapes.accepted_disk(disk.document))

    def begin_access(self, request: Request, path: ArmPath) -> Answer:
        disk = self.cloud.resources.get("disks", path.name)
        if request.json().get("access") != "Write" or disk.properties.get("diskState") != "ReadyToUpload":
            raise ApiError(409, f"Disk {path.name} is not ready to be uploaded.", "OperationNotAllowed")
        disk.properties["diskState"] = "ActiveUpload"
        secret = secrets.token_urlsafe(16)
        self._open[secret] = disk.name
        address = f"{base_url(request)}{UPLOAD_PATH}{disk.name}/abcd?sv=2018-03-28&sr=b&sig={secret}"
        operation = self.cloud.operations.begin(disk.document["id"])
        self._end(operation, output={"accessSAS": address})
        return self._accepted(request, operation)

    def end_access(self, request: Request, path: ArmPath) -> Answer:
        disk = self.cloud.resources.get("disks", path.name)
        self._open = {secret: name for secret, name in self._open.items() if name != disk.name}
        if disk.properties.get("diskState") == "ActiveUpload":
            disk.properties["diskState"] = "Unattached"
        operation = self.cloud.operations.begin(disk.document["id"])
        self._end(operation)
        return self._accepted(request, operation)

    def put_pages(self, request: Request) -> Answer:
        """Put Page of the storage service: its errors are XML, of which nobody reads more than the status."""
        name = self._open.get(request.argument("sig"))
        found = _RANGE.fullmatch(request.headers.get("x-ms-range", ""))
        if name is None or request.argument("comp") != "page":
            return Answer(403, b"<Error><Code>AuthenticationFailed</Code></Error>", content_type="application/xml")
        if found is None or request.headers.get("x-ms-page-write") != "update":
            return Answer(400, b"<Error><Code>InvalidHeaderValue</Code></Error>", content_type="application/xml")
        first, last = int(found[1]), int(found[2])
        size = self.cloud.resources.get("disks", name).properties["creationData"]["uploadSizeBytes"]
        wrong = first % _PAGE_BYTES or (last + 1) % _PAGE_BYTES or last >= size or last - first >= _MOST_BYTES
        if wrong or len(request.body) != last - first + 1:
            return Answer(416, b"<Error><Code>InvalidPageRange</Code></Error>", content_type="application/xml")
        told = request.headers.get("content-md5")
        if told and base64.b64decode(told) != hashlib.md5(request.body, usedforsecurity=False).digest():
            return Answer(400, b"<Error><Code>Md5Mismatch</Code></Error>", content_type="application/xml")
        self.pages.setdefault(name, {})[first] = request.body
        return Answer(201, b"")

    def put_image(self, request: Request, path: ArmPath) -> Answer:
        body = request.json()
        storage = (body.get("properties") or {}).get("storageProfile") or {}
        source = ((storage.get("osDisk") or {}).get("managedDisk") or {}).get("id", "")
        disk = self.cloud.resources.by_id(source)
        if disk is None:
            raise ApiError(404, f"Resource {source} not found.", "InvalidResourceReference")
        if disk.properties.get("diskState") != "Unattached" or not self._has_footer(disk):
            raise ApiError(409, f"Disk {disk.name} is not a complete upload.", "OperationNotAllowed")
        image = self.cloud.resources.find("images", path.name) or self.cloud.add_image(path.name, body.get("tags"))
        image.properties.update(body["properties"], provisioningState="Succeeded")
        if self.cloud.core.turn("image", False, True):
            self.late.add(image.name)
        operation = self.cloud.operations.begin(image.document["id"])
        self._end(operation)
        return self._accepted(request, operation, 201, shapes.accepted_image(image.document))

    def _has_footer(self, disk: ArmResource) -> bool:
        size = disk.properties["creationData"]["uploadSizeBytes"]
        pages = self.pages.get(disk.name, {})
        return any(offset + len(data) == size and data[-512:].startswith(b"conectix") for offset, data in pages.items())

    def content(self, name: str, size: int) -> bytes:
        """What a disk holds; unwritten pages are zero."""
        content = bytearray(size)
        for offset, data in self.pages.get(name, {}).items():
            content[offset : offset + len(data)] = data
        return bytes(content)
