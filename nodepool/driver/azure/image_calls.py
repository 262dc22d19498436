# SPDX-License-Identifier: Apache-2.0
"""`AzureImageCalls`: the calls that an upload makes, and the operations that they begin (AZ-12, AZ-13)."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from nodepool.clock import monotonic
from nodepool.driver.azure.client import DISKS, IMAGES, WRITE, Arm
from nodepool.driver.azure.long_operation import State, follow, wait
from nodepool.driver.azure.types import CANCELED, FAILED, SUCCEEDED
from nodepool.driver.framework.cloud_errors import CloudAway, CloudNotFound, CloudRefused
from nodepool.exceptions import ImageCreateException

if TYPE_CHECKING:
    from nodepool.driver.framework.http.plain_http import PlainHttp
    from nodepool.driver.framework.http.rest_calls import RestAnswer

#: How long the address of an upload is valid: longer than an upload takes.
ACCESS_SECONDS: Final = 24 * 3600
PAGES_SECONDS: Final = 120.0
_BLOB_VERSION: Final = "2023-11-03"
#: Attempts of a call that may be sent again.
_ATTEMPTS: Final = 3


class AzureImageCalls:
    """All methods block; any thread may call them. They raise what `nodepool.driver.framework.cloud_errors` has.

    :param http: for pages, which do not go to the Resource Manager.
    """

    def __init__(self, arm: Arm, http: PlainHttp, location: str, clock: Callable[[], float] = monotonic) -> None:
        self.arm = arm
        self._http = http
        self._location = location
        self._clock = clock

    # -- the disk that is uploaded --

    def create_disk(self, name: str, size: int, tags: Mapping[str, str], wanted: Callable[[], None]) -> None:
        """Make a disk that can be uploaded.

        :param size: of the file, in bytes.
        :param wanted: asked while it waits; what it raises ends it.
        """
        properties = {
            "creationData": {"createOption": "Upload", "uploadSizeBytes": size},
            "osType": "Linux",
            "hyperVGeneration": "V2",
        }
        body = {"location": self._location, "tags": dict(tags), "properties": properties}
        self._finish(self._put(DISKS, name, body), f"disk {name}", wanted)

    def begin_access(self, name: str, wanted: Callable[[], None]) -> str:
        """Where the disk is written to: an address that needs no login, so nobody may see it."""
        body = {"access": "Write", "durationInSeconds": ACCESS_SECONDS}
        answer = self._post(name, "beginGetAccess", body)
        what = f"access to disk {name}"
        data = self._finish(answer, what, wanted)
        if data is None and answer.headers.get("Location"):
            # The end of the operation need not have it: the official clients read it there.
            data = self._finish(
                answer._replace(status=202, headers={"Location": answer.headers["Location"]}), what, wanted
            )
        found = data.get("accessSAS") if isinstance(data, dict) else None
        if not isinstance(found, str) or not found.startswith(("https://", "http://")):
            raise CloudAway(f"Provider {self.arm.calls.provider}: Azure gave no address to write disk {name} to")
        return found

    def write_pages(self, address: str, offset: int, data: bytes) -> None:
        """Write pages of a disk. Azure compares their checksum.

        :param offset: of the first one, in bytes; as the length a multiple of 512.
        """
        from nodepool.driver.framework.http.plain_http import NoAnswer

        head = f"Provider {self.arm.calls.provider}: writing an image failed"
        headers = {
            "x-ms-version": _BLOB_VERSION,
            "x-ms-page-write": "update",
            "x-ms-range": f"bytes={offset}-{offset + len(data) - 1}",
            "Content-MD5": base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode(),
            "Content-Type": "application/octet-stream",
        }
        separator = "&" if "?" in address else "?"
        try:
            answer = self._http.send("PUT", f"{address}{separator}comp=page", headers, data, seconds=PAGES_SECONDS)
        except NoAnswer as error:
            # Without the address: it is as good as a password.
            text = str(error).replace(address, "the disk")
            raise CloudAway(f"{head}: {text.partition('?')[0]}") from None
        if answer.status == 201:
            return
        if answer.status in (408, 429) or answer.status >= 500:
            raise CloudAway(f"{head}: status {answer.status}")
        raise CloudRefused(f"{head}: status {answer.status}", status=answer.status)

    def end_access(self, name: str) -> None:
        """End the access; without that the disk can be neither used nor deleted. One that is gone is no error."""
        try:
            self._finish(self._post(name, "endGetAccess", None), f"end of the access to disk {name}")
        except CloudNotFound:
            return

    def delete(self, kind: str, name: str) -> None:
        """Delete a resource, and wait until it is gone. One that is gone already is no error."""
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                answer = self.arm.begin_delete(kind, name)
            except CloudNotFound:
                return
            except CloudAway:
                if attempt == _ATTEMPTS:
                    raise
                continue
            if answer.status != 204:
                self._finish(answer, f"deletion of {name}")
            return

    # -- the image --

    def create_image(self, name: str, disk: str, tags: Mapping[str, str], wanted: Callable[[], None]) -> None:
        """Make an image of a disk, and wait until it can be used.

        :raises ImageCreateException: it cannot, or it took too long.
        """
        properties = {
            "hyperVGeneration": "V2",
            "storageProfile": {
                "osDisk": {
                    "osType": "Linux",
                    "osState": "Generalized",
                    "managedDisk": {"id": self.arm.resource_id(DISKS, disk)},
                },
                "zoneResilient": True,
            },
        }
        body = {"location": self._location, "tags": dict(tags), "properties": properties}
        self._finish(self._put(IMAGES, name, body), f"image {name}", wanted)
        where = f"Provider {self.arm.calls.provider}: image {name}"

        def look() -> tuple[State, None]:
            # After the end of the operation Azure may not know the image for a moment, or it may not be ready.
            status = self.arm.image(name).status
            if status in (FAILED, CANCELED):
                raise ImageCreateException(f"{where} is {status} after its upload")
            return State(status == SUCCEEDED), None

        wait(self.arm, where, look, self._clock, wanted)

    # -- inside --

    def _put(self, kind: str, name: str, body: Mapping[str, Any]) -> RestAnswer:
        """The same again makes nothing new."""
        return self._again(lambda: self.arm.request(WRITE, "PUT", kind, name, f"creating {name}", body=body))

    def _post(self, disk: str, action: str, body: Mapping[str, Any] | None) -> RestAnswer:
        what = f"{action} of {disk}"
        return self._again(lambda: self.arm.request(WRITE, "POST", DISKS, disk, what, action, body))

    def _again(self, call: Callable[[], RestAnswer]) -> RestAnswer:
        for _ in range(_ATTEMPTS - 1):
            try:
                return call()
            except CloudAway as error:
                if not error.maybe_done:
                    raise
        return call()

    def _finish(self, answer: RestAnswer, what: str, wanted: Callable[[], None] = lambda: None) -> Any:
        return follow(self.arm, answer, what, self._clock, wanted)
