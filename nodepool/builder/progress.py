# SPDX-License-Identifier: Apache-2.0
"""How far running builds and uploads are, for status records, commands and metrics.

First the builds, then the uploads with their speed, then the steps of a build as its output shows them.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from nodepool.clock import monotonic


@dataclass(frozen=True)
class BuildState:
    """One build that runs. Times are seconds since the epoch.

    :param since: when it began.
    :param step: what it does now.
    :param step_since: when that began.
    :param estimate: how long all of it may take, in seconds; None = nobody knows.
    """

    image: str
    build_id: str
    since: float
    estimate: float | None
    step: str
    step_since: float


class RunningBuilds:
    """Those of this builder. Any thread, nothing blocks. ``_lock`` guards ``_builds``."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._builds: dict[str, BuildState] = {}
        #: Called, in any thread, when a build begins, ends, or another step of it begins; must neither block nor raise.
        self.on_change: Callable[[], None] = lambda: None

    @contextlib.contextmanager
    def running(self, image: str, build_id: str, progress: BuildProgress, estimate: float | None) -> Iterator[None]:
        """Inside, the build runs."""
        build = BuildState(image, build_id, progress.since, estimate, progress.step, progress.since)
        with self._lock:
            self._builds[build_id] = build
        self.on_change()
        try:
            yield
        finally:
            with self._lock:
                self._builds.pop(build_id, None)
            self.on_change()

    def step(self, build_id: str, progress: BuildProgress) -> None:
        """Another step of a build has begun."""
        with self._lock:
            build = self._builds[build_id]
            self._builds[build_id] = replace(build, step=progress.step, step_since=progress.since)
        self.on_change()

    def current(self) -> list[BuildState]:
        """All that run, the oldest first."""
        with self._lock:
            return list(self._builds.values())

    def ids(self) -> set[str]:
        """Ids of all that run."""
        with self._lock:
            return set(self._builds)

    def as_status(self) -> dict[str, dict[str, object]]:
        """For the status record of the builder, in the form that commands read."""
        return {
            f"{build.image}/{build.build_id}": {
                "step": build.step,
                "since": build.since,
                "step_since": build.step_since,
                "estimate": build.estimate,
            }
            for build in self.current()
        }


# Running uploads, with their progress and speed, for status records, commands and metrics.

#: The speed is that of so many seconds.
WINDOW_SECONDS: Final = 10.0
#: Between two notes for the speed, and between two calls of a listener.
NOTE_SECONDS: Final = 0.5


@dataclass(frozen=True)
class UploadKey:
    """One upload that runs, e.g. in status records ``fedora/<build id>/cloud/0000000001``."""

    image: str
    build_id: str
    provider: str
    upload_id: str

    def __str__(self) -> str:
        return f"{self.image}/{self.build_id}/{self.provider}/{self.upload_id}"


@dataclass(frozen=True)
class UploadState:
    """How far an upload is.

    :param size: of the file, in bytes.
    """

    done: int
    size: int
    bytes_per_second: float

    @property
    def percent(self) -> float:
        return 100.0 * self.done / self.size if self.size > 0 else 0.0


class Meter:
    """How far one upload is. ``_lock`` guards everything in it.

    :param changed: notified of progress, now and then. Must neither block nor raise.
    """

    def __init__(self, size: int, changed: Callable[[], None], clock: Callable[[], float] = monotonic) -> None:
        self._size = size
        self._changed = changed
        self._clock = clock
        self._lock = threading.Lock()
        self._done = 0
        #: Times, and what was uploaded by then; not more often than `NOTE_SECONDS`.
        self._notes: deque[tuple[float, int]] = deque([(clock(), 0)])

    def report(self, done: int, total: int) -> None:
        """Bytes that are uploaded, as `Report` of `nodepool.driver.framework.uploads`. Any thread; does not block."""
        now = self._clock()
        with self._lock:
            begins_again = done < self._done
            self._done, self._size = done, total
            due = begins_again or now - self._notes[-1][0] >= NOTE_SECONDS
            if begins_again:
                self._notes.clear()
            if due:
                self._notes.append((now, done))
            while len(self._notes) > 1 and now - self._notes[1][0] >= WINDOW_SECONDS:
                self._notes.popleft()
        if due:
            self._changed()

    def state(self) -> UploadState:
        """Does not block."""
        now = self._clock()
        with self._lock:
            begun, before = self._notes[0]
            speed = (self._done - before) / (now - begun) if now > begun else 0.0
            return UploadState(self._done, self._size, max(0.0, speed))


class RunningUploads:
    """Those of this builder. Any thread, nothing blocks. ``_lock`` guards ``_meters``."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._meters: dict[UploadKey, Meter] = {}
        #: Called, in any thread, when an upload begins, ends or gets on; must neither block nor raise.
        self.on_change: Callable[[], None] = _nothing

    @contextlib.contextmanager
    def running(self, key: UploadKey, size: int) -> Iterator[Meter]:
        """Inside, the upload runs.

        :param size: of the file, in bytes.
        """
        meter = Meter(size, lambda: self.on_change())
        with self._lock:
            self._meters[key] = meter
        self.on_change()
        try:
            yield meter
        finally:
            with self._lock:
                self._meters.pop(key, None)
            self.on_change()

    def states(self) -> dict[UploadKey, UploadState]:
        """All that run, with how far they are."""
        with self._lock:
            meters = dict(self._meters)
        return {key: meter.state() for key, meter in meters.items()}

    def as_status(self) -> dict[str, dict[str, float]]:
        """For the status record of the builder, in the form that commands read."""
        return {
            str(key): {
                "percent": round(state.percent, 1),
                "bytes_per_second": round(state.bytes_per_second),
                "size": state.size,
            }
            for key, state in self.states().items()
        }


def _nothing() -> None:
    """Stands for a listener."""


# The progress of a build, from the output of diskimage-builder. It is pure: time is an argument.

#: Before the first word of diskimage-builder.
STARTING: Final = "starting"

#: It writes the time before each line, unless ``DIB_NO_TIMESTAMP`` says not to.
_TIME: Final = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+ \| ")
#: A script begins; its phase is the last directory of ``/tmp/in_target.d/pre-install.d/10-foo``.
_SCRIPT: Final = re.compile(r"^dib-run-parts Running \S*?([\w.-]+)\.d/([\w.-]+)$")
#: Start of a line -> the step that begins with it.
_STEPS: Final = (
    ("Converting image using ", "converting"),
    ("Image file ", "finishing"),
    ("Build completed successfully", "completed"),
)


@dataclass(frozen=True)
class Step:
    """A part of a build that has ended.

    :param seconds: how long it took.
    """

    name: str
    seconds: float


def step_of(line: str) -> str | None:
    """The step that a line of output tells the begin of; None: it tells none."""
    text = _TIME.sub("", line)
    if text.startswith("+"):
        # What the shell traces has the texts, too, as arguments of echo.
        return None
    match = _SCRIPT.match(text)
    if match is not None:
        return match[1]
    return next((step for start, step in _STEPS if text.startswith(start)), None)


class BuildProgress:
    """The steps of one build. For one thread.

    :param now: seconds since the epoch.
    """

    def __init__(self, now: float) -> None:
        #: What is being done.
        self.step = STARTING
        #: Since when, in seconds since the epoch.
        self.since = now
        self.ended: list[Step] = []

    def read(self, line: str, now: float) -> bool:
        """Take a line of output. True: another step has begun."""
        step = step_of(line)
        if step is None or step == self.step:
            return False
        self.end(now)
        self.step, self.since = step, now
        return True

    def end(self, now: float) -> None:
        """The present step has ended."""
        self.ended.append(Step(self.step, max(0.0, now - self.since)))
