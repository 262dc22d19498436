# SPDX-License-Identifier: Apache-2.0
"""Data of images on their way: counted and hashed, not kept; and what goes wrong with them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from fnmatch import fnmatchcase

from simulators.openstack import knobs as kinds
from simulators.openstack.core import Core
from simulators.openstack.knobs import UploadRule
from simulators.openstack.messages import ApiError, SteeredSink

#: Of the beginning that is kept: the head of a qcow2 image.
HEAD_BYTES = 32
QCOW2_MAGIC = b"QFI\xfb"


class BrokenOff(Exception):
    """The connection ends without an answer."""


class Upload(SteeredSink):
    """Takes the data of one image.

    :param fault: what goes wrong with them.
    :param slow: how slow they are.
    :param checksums: whether to make any.
    :param clock: seconds, for ``slow``.
    :param refused: why nothing is taken at all.
    :param on_abandon: called when they will not be complete, or are not wanted.
    """

    def __init__(
        self,
        fault: UploadRule | None = None,
        slow: UploadRule | None = None,
        checksums: bool = True,
        clock: Callable[[], float] = lambda: 0.0,
        refused: ApiError | None = None,
        on_abandon: Callable[[], None] = lambda: None,
    ) -> None:
        self.size = 0
        self.head = b""
        self.over = refused is not None
        self._hashes = [hashlib.md5(usedforsecurity=False), hashlib.sha512()] if checksums else []
        self._fault = fault
        self._slow = slow
        self._clock = clock
        self._begun = clock()
        self._arrived = 0
        self._refused = refused
        self._on_abandon = on_abandon
        self._settled = False

    @property
    def md5(self) -> str | None:
        """None = it was not made."""
        return self._hashes[0].hexdigest() if self._hashes else None

    @property
    def sha512(self) -> str | None:
        """None = it was not made."""
        return self._hashes[1].hexdigest() if self._hashes else None

    @property
    def virtual_size(self) -> int:
        """What a server sees of it, in bytes."""
        return int.from_bytes(self.head[24:32]) if self.head.startswith(QCOW2_MAGIC) else self.size

    def feed(self, data: bytes) -> None:
        self._arrived += len(data)
        fault = self._fault
        if fault is not None and fault.kind == kinds.CORRUPT and data and not self.size:
            data = bytes([data[0] ^ 1]) + data[1:]
        elif fault is not None and fault.kind != kinds.CORRUPT:
            data = data[: max(0, fault.after_bytes - self.size)]
            self.over = fault.kind in (kinds.BREAK, kinds.FAIL) and self._arrived >= fault.after_bytes
        self.size += len(data)
        self.head += data[: HEAD_BYTES - len(self.head)]
        for one in self._hashes:
            one.update(data)

    def add(self, other: Upload) -> None:
        """Another one's data come behind; checksums do not know of them."""
        self.size += other.size
        self.head = (self.head + other.head)[:HEAD_BYTES]

    def pause_seconds(self) -> float:
        if self._slow is None or self.over:
            return 0.0
        return self._begun + self._arrived / self._slow.bytes_per_second - self._clock()

    def check(self) -> None:
        """They have come, or no more of them are taken.

        :raises BrokenOff: the connection breaks off.
        :raises ApiError: they are refused.
        """
        fault = self._fault
        if self._refused is not None:
            raise self._refused
        if fault is not None and fault.kind == kinds.BREAK:
            raise BrokenOff
        if fault is not None and fault.kind == kinds.FAIL:
            raise ApiError(fault.status, fault.message or "Failed to upload image data due to internal error.")

    def keep(self) -> None:
        """They are an image now."""
        self._settled = True

    def abandon(self) -> None:
        if not self._settled:
            self._settled = True
            if self._fault is None or not self._fault.stays:
                self._on_abandon()


def expect(
    core: Core, name: str, refused: ApiError | None = None, on_abandon: Callable[[], None] = lambda: None
) -> Upload:
    """Data for an image or object begin to come; the settings say what happens to them. The caller holds the lock."""
    slow = _rule(core, name, lambda rule: rule.kind == kinds.SLOW)
    fault = _rule(core, name, lambda rule: rule.kind != kinds.SLOW)
    return Upload(fault, slow, core.knobs.image_checksums, core.now, refused, on_abandon)


def _rule(core: Core, name: str, wanted: Callable[[UploadRule], bool]) -> UploadRule | None:
    for rule in core.knobs.image_uploads:
        if wanted(rule) and fnmatchcase(name, rule.image) and core.applies(rule, "image uploads"):
            core.events[f"image uploads {rule.kind}"] += 1
            return rule
    return None
