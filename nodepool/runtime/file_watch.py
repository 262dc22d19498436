# SPDX-License-Identifier: Apache-2.0
"""Waits until the kernel reports a change of files (inotify), or until another thread asks for it."""

from __future__ import annotations

import contextlib
import logging
import os
import select
import threading
from collections.abc import Callable, Iterable
from typing import Final

from inotify_simple import INotify, flags

from nodepool.clock import monotonic, sleep

#: So often who waits looks by itself where the kernel cannot tell of changes.
LOOK_SECONDS: Final = 0.2
#: So often it is made sure that the files are still those that are watched, if there is no other reason.
RENEW_SECONDS: Final = 10.0
#: After a change others are waited for: an editor makes several, and a busy directory must not make a busy loop.
SETTLE_SECONDS: Final = 0.05

#: A file was written and closed, was replaced by a renamed one, or has other times or permissions. That a file was made
#: is not asked for: it is empty then.
_CHANGES: Final = flags.CLOSE_WRITE | flags.MOVED_TO | flags.ATTRIB


class FileWatch:
    """What it reports is a hint that is never late by more than the wait, and may be for nothing.

    The directory of each file is watched, because editors and configuration management rename a new file to the old
    name, and Kubernetes replaces a symbolic link there. The file itself is watched, too: where it is mounted alone into
    a container, its directory hears of nothing. A file that another machine changes on a network file system is not
    told of.

    :param files: the paths of today; asked before each wait. Any of them may be missing.
    """

    def __init__(self, files: Callable[[], Iterable[str]], log: logging.Logger) -> None:
        self.log = log
        self._files = files
        self._inotify: INotify | None = None
        #: File descriptor that `wake` writes to; None = not open.
        self._wake: int | None = None
        self._lock = threading.Lock()
        self._poll = select.poll()
        #: What is watched, and until when it is believed to be.
        self._watched: tuple[str, ...] = ()
        self._watched_until = float("-inf")

    def open(self) -> None:
        """Begin. Not in the constructor, because a daemon closes all files when it goes to the background."""
        with self._lock:
            self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._poll.register(self._wake, select.POLLIN)
        self._watched_until = float("-inf")
        try:
            self._inotify = INotify()
        except OSError as error:
            # E.g. fs.inotify.max_user_instances is reached.
            self.log.info("The kernel does not report changed files (%s): they are checked every 0.2 s", error)
            return
        self._poll.register(self._inotify, select.POLLIN)

    def close(self) -> None:
        """End; `wake` does nothing then."""
        with self._lock:
            wake, self._wake = self._wake, None
        self._poll = select.poll()
        if wake is not None:
            os.close(wake)
        if self._inotify is not None:
            self._inotify.close()
            self._inotify = None

    def wake(self) -> None:
        """End the wait of now, or else the next one. Any thread; does not block."""
        with self._lock:
            if self._wake is not None:
                os.eventfd_write(self._wake, 1)

    def wait(self, seconds: float) -> None:
        """Block until a file may have changed, until `wake`, or for so many seconds."""
        if self._inotify is not None:
            self._watch(self._inotify)
        ready = self._poll.poll((seconds if self._inotify else min(seconds, LOOK_SECONDS)) * 1000)
        for descriptor, _ in ready:
            if descriptor == self._wake:
                os.eventfd_read(descriptor)
            elif self._inotify is not None:
                sleep(min(seconds, SETTLE_SECONDS))
                self._inotify.read(timeout=0)
                # One of them may be another file, or another directory, by now.
                self._watched_until = float("-inf")

    def _watch(self, inotify: INotify) -> None:
        files = tuple(self._files())
        if files == self._watched and monotonic() < self._watched_until:
            return
        self._watched, self._watched_until = files, monotonic() + RENEW_SECONDS
        for watched in dict.fromkeys(each for path in files for each in (os.path.dirname(path) or ".", path)):
            # It is missing, or may not be read, or there are too many watches: the main loop looks once a turn in any
            # case.
            with contextlib.suppress(OSError, ValueError):
                # Of one that is watched already this changes nothing.
                inotify.add_watch(watched, _CHANGES)
