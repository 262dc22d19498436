# SPDX-License-Identifier: Apache-2.0
"""A raw disk as Compute Engine takes it: ``disk.raw`` in a tar archive, in gzip; made while it is read.

https://cloud.google.com/compute/docs/import/import-existing-image: the size of the disk is a multiple of 1 GiB, and the
archive has the old format of GNU tar. Most of a disk is zero. What is zero is compressed once, and repeated: the
pieces of a deflate stream (RFC 1951) that do not refer to others may be put together.
"""

from __future__ import annotations

import os
import struct
import tarfile
import zlib
from collections.abc import Callable, Iterator
from typing import BinaryIO, Final

FILE_NAME: Final = "disk.raw"
#: The size of a disk is a multiple of this.
DISK_UNIT_BYTES: Final = 1024**3
#: Read at once.
BLOCK_BYTES: Final = 1024 * 1024
#: Quick: what is sent is mostly not compressible further.
_LEVEL: Final = 1
_GZIP_HEAD: Final = bytes((0x1F, 0x8B, 8, 0, 0, 0, 0, 0, 0, 0xFF))
_RAW_DEFLATE: Final = -15
_ZEROS: Final = bytes(BLOCK_BYTES)
_TAR_BLOCK: Final = tarfile.BLOCKSIZE


def disk_size(file_bytes: int, unit: int = DISK_UNIT_BYTES) -> int:
    """Size of the disk for a file, in bytes."""
    return max(1, -(-file_bytes // unit)) * unit


class GzipStream:
    """A gzip stream in which blocks of zeros cost next to nothing. For one use, in one thread."""

    def __init__(self) -> None:
        self._deflate = zlib.compressobj(_LEVEL, zlib.DEFLATED, _RAW_DEFLATE)
        zeros = zlib.compressobj(_LEVEL, zlib.DEFLATED, _RAW_DEFLATE)
        self._zeros = zeros.compress(_ZEROS) + zeros.flush(zlib.Z_FULL_FLUSH)
        self._flushed = True
        self._crc = 0
        self._size = 0

    def begin(self) -> bytes:
        """The head."""
        return _GZIP_HEAD

    def add(self, data: bytes) -> bytes:
        """The next data, compressed as far as it can be told yet."""
        self._crc = zlib.crc32(data, self._crc)
        self._size += len(data)
        if len(data) == BLOCK_BYTES and data == _ZEROS:
            before = b"" if self._flushed else self._deflate.flush(zlib.Z_FULL_FLUSH)
            self._flushed = True
            return before + self._zeros
        self._flushed = False
        return self._deflate.compress(data)

    def end(self) -> bytes:
        """What is left, and the checksum."""
        return self._deflate.flush() + struct.pack("<II", self._crc, self._size & 0xFFFFFFFF)


def tar_gz(
    file: BinaryIO, unit: int = DISK_UNIT_BYTES, read: Callable[[int], None] = lambda _: None
) -> Iterator[bytes]:
    """The archive of a raw disk, piece by piece; blocks.

    :param file: open, at its beginning.
    :param unit: the disk is filled up with zeros to a multiple of it, in bytes.
    :param read: told how many bytes of the file were read.
    :raises OSError: it cannot be read, or changed its size meanwhile.
    """
    file_bytes = os.fstat(file.fileno()).st_size
    head = tarfile.TarInfo(FILE_NAME)
    head.size = disk_size(file_bytes, unit)
    head.mode = 0o644
    stream, done = GzipStream(), 0
    yield stream.begin() + stream.add(head.tobuf(tarfile.GNU_FORMAT))
    while block := file.read(BLOCK_BYTES):
        done += len(block)
        read(done)
        yield stream.add(block)
    if done != file_bytes:
        raise OSError(f"{file.name} changed its size while it was read")
    # The end of the archive: two empty blocks, filled up to a record.
    padding = head.size - done
    end = -(_TAR_BLOCK + head.size + 2 * _TAR_BLOCK) % tarfile.RECORDSIZE + 2 * _TAR_BLOCK
    padding += end
    while padding > 0:
        block = _ZEROS[: min(BLOCK_BYTES, padding)]
        padding -= len(block)
        yield stream.add(block)
    yield stream.end()
