# SPDX-License-Identifier: Apache-2.0
"""The progress of an upload: drivers report it, and the builder shows it. A driver need not report it.

The builder binds two functions to the thread in which it calls ``uploadImage()``; `report` and `check` call those of
their thread. A driver that uploads in threads of its own asks for them with `reporter` and `checker` first.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from typing import BinaryIO, Final

#: Gets the bytes that are uploaded, and the bytes in all. Does not block; may raise `UploadGivenUp`. Any thread.
Report = Callable[[int, int], None]
#: Raises `UploadGivenUp` when the upload is to end. Blocks while nobody knows, e.g. without ZooKeeper. Any thread.
Check = Callable[[], None]


class UploadGivenUp(Exception):
    """Nobody wants the upload any more. A driver ends it as after any other error (U-9), and lets this pass."""


class UploadInterrupted(UploadGivenUp):
    """The builder cannot go on with the upload; it is still wanted.

    A driver whose `nodepool.driver.config.ProviderConfig` says ``resumes_uploads`` may leave what it has done so far:
    the next upload of the same build to the same provider goes on with it, and only then the record of this one goes.
    """


_bound: Final = threading.local()


def _nobody(done: int, total: int) -> None:
    """Stands for the builder where nobody watches."""


def _wanted() -> None:
    """The same for `check`."""


@contextlib.contextmanager
def watched(report: Report, check: Check = _wanted) -> Iterator[None]:
    """Inside, what this thread reports goes to a function, and another one says whether the upload is still wanted."""
    before = reporter(), checker()
    _bound.report, _bound.check = report, check
    try:
        yield
    finally:
        _bound.report, _bound.check = before


def reporter() -> Report:
    """The function that is bound to this thread; one that does nothing if there is none. Does not block."""
    bound: Report = getattr(_bound, "report", _nobody)
    return bound


def report(done: int, total: int) -> None:
    """Say how far the upload of this thread is, in bytes. Does not block.

    :raises UploadGivenUp: it is to end.
    """
    reporter()(done, total)


def checker() -> Check:
    """The function that is bound to this thread; one that does nothing if there is none. Does not block."""
    bound: Check = getattr(_bound, "check", _wanted)
    return bound


def check() -> None:
    """For times at which no data are sent, and before something is made in the cloud: is the upload still wanted?

    Blocks while nobody knows.

    :raises UploadGivenUp: it is to end.
    """
    checker()()


class CountingFile:
    """An image file as the body of a request, which reports what was read of it.

    It is read from its beginning again if a call is repeated. Can be iterated over, in chunks. Not closed by itself.

    :param file: open, at its beginning.
    :param chunk_bytes: of an iteration.
    """

    def __init__(self, file: BinaryIO, chunk_bytes: int = 1024 * 1024) -> None:
        self._file = file
        self._chunk_bytes = chunk_bytes
        self._report = reporter()
        self.size = os.fstat(file.fileno()).st_size

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[bytes]:
        self.seek(0)
        while chunk := self.read(self._chunk_bytes):
            yield chunk

    def read(self, count: int = -1) -> bytes:
        """Read, and report the place. Raises UploadGivenUp."""
        data = self._file.read(count)
        self._report(self._file.tell(), self.size)
        return data

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to a place in the file; returns it."""
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        """The place in the file, in bytes."""
        return self._file.tell()

    def fileno(self) -> int:
        """Of the open file."""
        return self._file.fileno()
