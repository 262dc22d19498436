# SPDX-License-Identifier: Apache-2.0
"""Informs the builder how far openstacksdk is with a file that it sends, maybe in several parts at once."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any, Protocol

from nodepool.driver.framework import upload_progress
from nodepool.driver.framework.upload_progress import UploadGivenUp
from nodepool.driver.openstack.image_content import REPORT_BYTES


class Readable(Protocol):
    """What the library would send: an open file, or a part of one."""

    def read(self, size: int = -1, /) -> bytes: ...

    def seek(self, offset: int, whence: int = 0, /) -> Any: ...

    def tell(self) -> int: ...


class SentData:
    """Counts the bytes of one file. ``_lock`` guards the counts; ``_telling`` is held while the builder is notified.

    :param size: of the file, in bytes.
    """

    def __init__(self, size: int) -> None:
        #: Why nobody wants the upload any more. The library makes another error of it.
        self.given_up: UploadGivenUp | None = None
        self._size = size
        self._report = upload_progress.reporter()
        self._lock = threading.Lock()
        self._telling = threading.Lock()
        self._sent = self._told = 0

    def watch(self, put: Callable[..., Any]) -> Callable[..., Any]:
        """A function that sends what another one sends, and counts it on the way.

        :param put: ``data`` is the body: a file, or something that is not counted.
        """

        def counted(*args: Any, data: Any = None, **named: Any) -> Any:
            return put(*args, data=SentPart(data, self._add) if hasattr(data, "read") else data, **named)

        return counted

    def _add(self, count: int) -> None:
        """Any thread. Raises UploadGivenUp."""
        with self._lock:
            if self.given_up is not None:
                # Other parts, which were begun or wait for their turn.
                raise self.given_up
            self._sent += count
            if self._sent < self._size and abs(self._sent - self._told) < REPORT_BYTES:
                return
            self._told = self._sent
        try:
            # Of several parts at once none tells an older count after a newer one: that would be another attempt.
            with self._telling:
                self._report(self._sent_now(), self._size)
        except UploadGivenUp as error:
            self.given_up = error
            raise

    def _sent_now(self) -> int:
        with self._lock:
            return self._sent


class SentPart:
    """The body of one request. Who sends it once more goes to its beginning first: those bytes are counted once.

    It has no length and no descriptor on purpose: for libraries the length is the place of its end then.
    """

    def __init__(self, source: Readable, add: Callable[[int], None]) -> None:
        self._source = source
        self._add = add
        self._sent = 0

    def read(self, size: int = -1) -> bytes:
        """Read, and count it. Raises UploadGivenUp."""
        data = self._source.read(size)
        self._sent += len(data)
        self._add(len(data))
        return data

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> None:
        """Go to a place. What was read before is not sent."""
        self._source.seek(offset, whence)
        sent, self._sent = self._sent, 0
        if sent:
            self._add(-sent)

    def tell(self) -> int:
        """The place, in bytes."""
        return self._source.tell()
