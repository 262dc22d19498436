# SPDX-License-Identifier: Apache-2.0
"""Checksums of image files: those that diskimage-builder wrote, or computed once for each file (rule U-5)."""

from __future__ import annotations

import hashlib
import os
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Final

from nodepool.builder.image_files import Checksums, ImageFiles
from nodepool.guard import settle

_CHUNK_BYTES: Final = 1024 * 1024
#: Files of which the checksums are remembered.
_MAX_KNOWN: Final = 200

#: A file as it was: path, size, time of its last change.
_File = tuple[str, int, int]


class FileChecksums:
    """Any thread. If one file is uploaded to several clouds at once, it is read once for its checksums.

    ``_lock`` guards ``_computed``; it is not held while a file is read.
    """

    def __init__(self, files: ImageFiles) -> None:
        self._files = files
        self._lock = threading.Lock()
        self._computed: dict[_File, Future[Checksums]] = {}

    def of(self, image: str, build_id: str, image_format: str) -> Checksums:
        """Both checksums of an image file. Blocks as long as the file is read, if it has to be. Raises OSError."""
        told = self._files.checksums(image, build_id, image_format)
        if told.md5 is not None and told.sha256 is not None:
            return told
        path = self._files.path(image, build_id, image_format)
        computed = self._compute_once(path)
        return Checksums(told.md5 or computed.md5, told.sha256 or computed.sha256)

    def _compute_once(self, path: Path) -> Checksums:
        found = path.stat()
        file = (os.fspath(path), found.st_size, found.st_mtime_ns)
        with self._lock:
            known = self._computed.get(file)
            future = known or Future()
            if known is None:
                if len(self._computed) >= _MAX_KNOWN:
                    del self._computed[next(iter(self._computed))]
                self._computed[file] = future
        if known is None:
            settle([future], lambda: _compute(path))
            if future.exception() is not None:
                # The next one tries again.
                with self._lock:
                    self._computed.pop(file, None)
        return future.result()


def _compute(path: Path) -> Checksums:
    md5, sha256 = hashlib.md5(usedforsecurity=False), hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            md5.update(chunk)
            sha256.update(chunk)
    return Checksums(md5.hexdigest(), sha256.hexdigest())
