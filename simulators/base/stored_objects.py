# SPDX-License-Identifier: Apache-2.0
"""Buckets of an object storage with their objects. Data are counted and hashed, and kept only if the cloud wants it."""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

from simulators.base.core import SimulationCore
from simulators.base.messages import ApiError


@dataclass(frozen=True)
class Piece:
    """Data that arrived in one request.

    :param data: None = they are not kept.
    :param crc32: as the client has told it, Base64; None = it has not.
    """

    size: int
    md5: str
    data: bytes | None = None
    crc32: str | None = None

    @classmethod
    def of(cls, data: bytes, crc32: str | None, keep: bool = False) -> Piece:
        """:param crc32: what the client says of them, Base64; None = nothing.
        :raises ApiError: 400, it says something else.
        """
        if crc32 is not None and crc32 != base64.b64encode(zlib.crc32(data).to_bytes(4, "big")).decode():
            raise ApiError(400, "The CRC32 you specified did not match the calculated checksum.", "BadDigest")
        md5 = hashlib.md5(data, usedforsecurity=False).hexdigest()
        return cls(len(data), md5, data if keep else None, crc32)


@dataclass
class StoredObject:
    """One object.

    :param pieces: the parts that it came in.
    :param in_parts: it was uploaded as parts, maybe as one.
    """

    key: str
    modified: str
    pieces: list[Piece]
    tags: dict[str, str] = field(default_factory=dict)
    in_parts: bool = False

    @property
    def size(self) -> int:
        return sum(piece.size for piece in self.pieces)

    @property
    def etag(self) -> str:
        if not self.in_parts:
            return f'"{self.pieces[0].md5}"'
        whole = hashlib.md5(b"".join(bytes.fromhex(piece.md5) for piece in self.pieces), usedforsecurity=False)
        return f'"{whole.hexdigest()}-{len(self.pieces)}"'

    @property
    def crc32(self) -> str | None:
        """The checksum over those of its parts, and their number; None = there is none of each."""
        if len(self.pieces) == 1 and not self.in_parts:
            return self.pieces[0].crc32
        told = [piece.crc32 for piece in self.pieces if piece.crc32 is not None]
        if len(told) < len(self.pieces):
            return None
        whole = zlib.crc32(b"".join(base64.b64decode(one) for one in told))
        return f"{base64.b64encode(whole.to_bytes(4, 'big')).decode()}-{len(told)}"

    @property
    def data(self) -> bytes:
        """What is in it; empty where data are not kept."""
        return b"".join(piece.data or b"" for piece in self.pieces)


@dataclass
class OpenUpload:
    """An upload in parts that is not complete."""

    id: str
    key: str
    begun: str
    tags: dict[str, str]
    parts: dict[int, Piece] = field(default_factory=dict)


class StoredObjects:
    """Buckets by name. The caller holds the core's lock.

    :param core: counts what happens.
    :param stamp: now, as the cloud writes it.
    :param names: of the buckets that there are.
    :param location: what the cloud says where its buckets are; "" = nothing.
    :param keep_data: the data of objects are kept, not only their hashes.
    """

    def __init__(
        self,
        core: SimulationCore[Any],
        stamp: Callable[[], str],
        names: Callable[[], Collection[str]],
        location: str = "",
        keep_data: bool = False,
    ) -> None:
        self.core = core
        self.stamp = stamp
        self.location = location
        self.keep_data = keep_data
        self._names = names
        self.buckets: dict[str, dict[str, StoredObject]] = {}
        self.uploads: dict[str, OpenUpload] = {}

    def bucket(self, name: str) -> dict[str, StoredObject]:
        """Its objects by key.

        :raises ApiError: 404.
        """
        if name not in self._names():
            raise ApiError(404, "The specified bucket does not exist", "NoSuchBucket")
        return self.buckets.setdefault(name, {})

    def get(self, bucket: str, key: str) -> StoredObject:
        """One object.

        :raises ApiError: 404.
        """
        found = self.bucket(bucket).get(key)
        if found is None:
            raise ApiError(404, "The specified key does not exist.", "NoSuchKey")
        return found

    def put(
        self, bucket: str, key: str, pieces: list[Piece], tags: dict[str, str], in_parts: bool = False
    ) -> StoredObject:
        """Stores an object; one with the same key is replaced.

        :raises ApiError: 400, 404.
        """
        if len(tags) > 10:
            raise ApiError(400, "Object tags cannot be greater than 10", "BadRequest")
        made = self.bucket(bucket)[key] = StoredObject(key, self.stamp(), pieces, tags, in_parts)
        self.core.events["objects stored"] += 1
        return made

    def upload(self, upload_id: str) -> OpenUpload:
        """An upload in parts.

        :raises ApiError: 404.
        """
        if upload_id not in self.uploads:
            raise ApiError(404, "The specified upload does not exist.", "NoSuchUpload")
        return self.uploads[upload_id]
