# SPDX-License-Identifier: Apache-2.0
"""Running builds, with their progress, for status records, commands and metrics."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from nodepool.builder.build_progress import BuildProgress


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
