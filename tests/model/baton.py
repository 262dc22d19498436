# SPDX-License-Identifier: Apache-2.0
"""Threads of which exactly one runs: whoever has the baton. The code in them needs no change and cannot race.

A job runs until it waits for something. Then the baton goes back to the world, which says who goes on.
"""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable

#: Real seconds after which a job that neither waits nor ends is taken for stuck: it blocks on something unknown.
STUCK_SECONDS = 60.0


def _closed() -> threading.Lock:
    """A lock as a signal: who waits for it takes it, and somebody else gives it free. Quicker than a semaphore."""
    lock = threading.Lock()
    lock.acquire()
    return lock


class Killed(BaseException):
    """The process of this job has died. Not an `Exception`: nothing in the code catches it."""


class Job:
    """Something that runs in a thread of its own.

    :param owner: whose process it belongs to.
    """

    def __init__(self, name: str, owner: object, work: Callable[[], None]) -> None:
        self.name = name
        self.owner = owner
        self.work = work
        self.done = False
        self.killed = False
        self.error: BaseException | None = None
        #: What it waits for; None = it has not begun, or may go on.
        self.waits_for: Callable[[], bool] | None = None
        self.deadline: float | None = None
        self.go = _closed()

    def __repr__(self) -> str:
        return self.name

    def can_go_on(self, now: float) -> bool:
        if self.waits_for is None or self.killed or (self.deadline is not None and now >= self.deadline):
            return True
        return self.waits_for()


class Baton:
    """Owned by the thread that made it: the world's."""

    def __init__(self) -> None:
        self._main = _closed()
        self._local = threading.local()
        self._idle: list[_Runner] = []
        self._runners: list[_Runner] = []

    @property
    def current(self) -> Job | None:
        """The job that asks; None = the world itself."""
        job: Job | None = getattr(self._local, "job", None)
        return job

    # -- the world --

    def run(self, job: Job, runner: dict[Job, _Runner]) -> None:
        """Let a job go on until it waits or ends."""
        found = runner.get(job)
        if found is None:
            found = runner[job] = self._idle.pop() if self._idle else self._new_runner()
            found.job = job
            found.wake.release()
        else:
            job.go.release()
        if not self._main.acquire(timeout=STUCK_SECONDS):
            # The only way to the stack of another thread.
            stack = "".join(traceback.format_stack(sys._current_frames()[found.thread.ident or 0]))  # noqa: SLF001
            raise RuntimeError(f"job {job} waits for something that the world does not know of:\n{stack}")
        if job.done:
            del runner[job]
            self._idle.append(found)
            if job.error is not None:
                raise job.error

    def _new_runner(self) -> _Runner:
        made = _Runner(self._main, self._local)
        self._runners.append(made)
        return made

    def close(self) -> None:
        """End the threads. All jobs must have ended."""
        for runner in self._runners:
            runner.job = None
            runner.wake.release()
        for runner in self._runners:
            runner.thread.join(STUCK_SECONDS)

    # -- jobs --

    def pause(self) -> None:
        """Let others do something, if this is a job."""
        if self.current is not None:
            self.wait(lambda: True)

    def wait(self, condition: Callable[[], bool], deadline: float | None = None) -> bool:
        """Give the baton back until something is true, at most until a time of the world's clock; is it true?"""
        job = self.current
        if job is None:
            if not condition():
                raise RuntimeError("only a job may wait")
            return True
        if job.killed:
            raise Killed
        job.waits_for, job.deadline = condition, deadline
        self._main.release()
        job.go.acquire()
        job.waits_for = job.deadline = None
        if job.killed:
            raise Killed
        return condition()


class _Runner:
    """A thread that is used for one job after the other."""

    def __init__(self, main: threading.Lock, local: threading.local) -> None:
        self.job: Job | None = None
        self.wake = _closed()
        self._main = main
        self._local = local
        self.thread = threading.Thread(target=self._run, name="model-job", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        while True:
            self.wake.acquire()
            job = self.job
            if job is None:
                return
            self._local.job = job
            try:
                if not job.killed:
                    job.work()
            except Killed:
                pass
            except BaseException as error:
                job.error = error
            self._local.job = None
            job.done = True
            self._main.release()
