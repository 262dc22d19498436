# SPDX-License-Identifier: Apache-2.0
"""`UploadWait`: what an upload does while it waits: it says how far it is, and hears whether it is still wanted."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from nodepool.clock import monotonic
from nodepool.driver.framework import upload_progress
from nodepool.driver.framework.cloud_errors import CloudQuota
from nodepool.driver.framework.image_time import WANTED_SECONDS, ImageTime
from nodepool.driver.framework.upload_progress import UploadInterrupted
from nodepool.exceptions import ImageCreateException

T = TypeVar("T")

log = logging.getLogger("nodepool.driver.aws.images")

#: Between two attempts to begin what AWS refuses because too much of it is under way (AW-17).
LIMIT_PAUSE_SECONDS: Final = 30.0


class UploadWait:
    """Of one upload; made in the thread that called ``uploadImage()``.

    :param head: whose upload it is, for texts.
    :param size: of the file, in bytes.
    :param stopped: set when the provider ends.
    """

    def __init__(self, head: str, size: int, stopped: threading.Event, clock: Callable[[], float] = monotonic) -> None:
        self.head = head
        self._size = size
        self._stopped = stopped
        self._clock = clock
        self._report = upload_progress.reporter()
        self._check = upload_progress.checker()
        self._done = 0

    @property
    def stopped(self) -> bool:
        """Has the provider ended?"""
        return self._stopped.is_set()

    def sent(self, done: int) -> None:
        """So many bytes are there. Raises UploadGivenUp: nobody wants the upload any more."""
        self._done = min(done, self._size)
        self.go_on()

    def go_on(self) -> None:
        """Say so again. Raises UploadGivenUp."""
        self._stop_now()
        self._report(self._done, self._size)

    def check(self) -> None:
        """Before something is made: is it still wanted? Blocks while nobody knows. Raises UploadGivenUp."""
        self._stop_now()
        self._check()

    def _stop_now(self) -> None:
        if self._stopped.is_set():
            raise UploadInterrupted("the provider was stopped")

    def looks(self, what: str, seconds: float) -> Iterator[None]:
        """Times to look: now, and after growing pauses.

        :param what: is waited for, for the error.
        :raises ImageCreateException: it is over.
        :raises UploadGivenUp: nobody wants the upload any more.
        """
        time = ImageTime(f"{self.head}: {what}", seconds, self._stopped, self._clock, self.go_on)
        self.go_on()
        yield from time.looks()
        self.go_on()
        raise time.over()

    def pause(self, seconds: float) -> None:
        """Block for a while. Raises UploadGivenUp."""
        left = seconds
        while left > 0:
            self.go_on()
            self._stopped.wait(min(WANTED_SECONDS, left))
            left -= WANTED_SECONDS
        self.go_on()

    def when_allowed(self, begin: Callable[[], T], timeout: float | None) -> T:
        """Begin something as soon as the limits of the account allow it.

        :param timeout: ``image-import-timeout``; None = the first refusal is an error.
        :raises ImageCreateException: AWS refused it for so long.
        """
        time = ImageTime(self.head, timeout or 0.0, self._stopped, self._clock)
        told = False
        while True:
            self.check()
            try:
                return begin()
            except CloudQuota as error:
                if timeout is None:
                    raise ImageCreateException(
                        f"{self.head}: {error}; set image-import-timeout, and uploads wait for that long"
                    ) from error
                if not told:
                    log.info("%s waits for a limit of the account: %s", self.head, error)
                    told = True
                pause = min(LIMIT_PAUSE_SECONDS, time.left())
                if pause <= 0:
                    raise ImageCreateException(
                        f"{self.head}: AWS refused it for image-import-timeout ({timeout:g} s): {error}"
                    ) from error
                self.pause(pause)
