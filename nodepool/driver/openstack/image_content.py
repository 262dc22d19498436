# SPDX-License-Identifier: Apache-2.0
"""What is sent of an image: the bytes of its file, and its properties (rules U-4, U-5)."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, BinaryIO, Final

from nodepool.driver.framework import upload_progress
from nodepool.exceptions import ImageCreateException

#: What is read and sent at a time. It stays in the processor's cache from the one to the other: with pieces of 1 MiB an
#: upload over a fast link reaches 60% of the rate.
CHUNK_BYTES: Final = 256 * 1024
#: So often the builder is told how far it is.
REPORT_BYTES: Final = 1024 * 1024
#: Properties that say of which upload an image is (D-1).
UPLOAD_KEYS: Final = ("nodepool_provider_name", "nodepool_build_id", "nodepool_upload_id")
#: Attributes of the image itself that are no texts in the API.
_NUMBERS: Final = frozenset({"min_disk", "min_ram"})
PROTECTED: Final = "protected"
_FLAGS: Final = frozenset({PROTECTED, "os_hidden"})
_LISTS: Final = frozenset({"tags"})
#: How much of a qcow2 file says how large the disk in it is.
_HEAD_BYTES: Final = 32
_QCOW2_MAGIC: Final = b"QFI\xfb"


class Content:
    """A file as the body of a request; its length is told beforehand, and how far it is to the builder.

    It can be sent again from its beginning: the cloud may put off a request, or want a new token for it. It has no
    ``read`` and no ``tell`` on purpose: libraries would go by the place that an attempt before has left.

    :param file: not closed by it.
    :param check: called before each piece; what it raises ends the request.
    """

    def __init__(self, file: BinaryIO, check: Callable[[], None] = lambda: None) -> None:
        self.size = os.fstat(file.fileno()).st_size
        #: Were all bytes taken, the last time that they were asked for?
        self.complete = False
        self._file = file
        self._check = check
        self._report = upload_progress.reporter()

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[bytes]:
        """:raises ImageCreateException: the file cannot be read, or another length was told."""
        sent = told = 0
        self.complete = False
        try:
            for chunk in self._chunks():
                sent += len(chunk)
                if sent > self.size:
                    break
                yield chunk
                self.complete = sent == self.size
                if self.complete or sent - told >= REPORT_BYTES:
                    told = sent
                    self._report(sent, self.size)
        except OSError as error:
            # For libraries it would be one of the connection.
            raise ImageCreateException(f"the image file cannot be read: {error}") from error
        if sent != self.size:
            raise ImageCreateException("the image file has changed its size while it was uploaded")

    def _chunks(self) -> Iterator[bytes]:
        self._file.seek(0)
        while chunk := self._file.read(CHUNK_BYTES):
            self._check()
            yield chunk

    def checksum(self, algorithm: str) -> str:
        """Of the whole file, which is read for it. Blocks.

        :param algorithm: that the cloud has chosen.
        :raises OSError: it cannot be read.
        """
        found = hashlib.new(algorithm, usedforsecurity=False)
        for chunk in self._chunks():
            found.update(chunk)
        return found.hexdigest()

    def virtual_size(self) -> int | None:
        """Size of the disk in a qcow2 file, in bytes; None = it is no such file."""
        self._file.seek(0)
        head = self._file.read(_HEAD_BYTES)
        return int.from_bytes(head[24:32]) if head.startswith(_QCOW2_MAGIC) else None


def api_properties(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Properties as Glance wants them."""
    return {key: _property(key, value) for key, value in properties.items()}


def _property(key: str, value: Any) -> Any:
    if key in _NUMBERS:
        return int(value)
    if key in _FLAGS:
        return str(value).lower() == "true"
    if key in _LISTS and isinstance(value, list):
        return [str(item) for item in value]
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


def checksum_properties(name: str, md5: str | None, sha256: str | None) -> dict[str, str]:
    """Properties in which openstacksdk's users look for checksums (U-5)."""
    known = {"md5": md5, "sha256": sha256, "object": f"images/{name}" if md5 or sha256 else None}
    return {f"owner_specified.openstack.{key}": value for key, value in known.items() if value}
