# SPDX-License-Identifier: Apache-2.0
"""The clocks of this process. Lint forbids the module `time` everywhere else.

A test that replaces the functions of `time` thereby runs the whole package by a clock of its own.
"""

from __future__ import annotations

import time


def monotonic() -> float:
    """Seconds since some moment in the past; never goes back. For durations and deadlines inside this process."""
    return time.monotonic()


def next_tick(now: float, period: float) -> float:
    """The next moment at which all that is done once in a period is done, in this process.

    A processor that was idle for a moment has lost what it knew of a program: the first milliseconds of work after that
    take several times as long. So threads that look at something from time to time do so together.

    :param now: monotonic seconds. ``period``: seconds.
    """
    return (now // period + 1) * period


def wall_time() -> float:
    """Seconds since the epoch, as records in ZooKeeper have them. An administrator may set it back or forward."""
    return time.time()


def cpu_time() -> float:
    """Seconds of processor time that the calling thread has used."""
    return time.thread_time()


def sleep(seconds: float) -> None:
    """Block the calling thread. Only for what cannot wait for an event."""
    time.sleep(seconds)


def utc_text(seconds: float) -> str:
    """A time since the epoch as ``YYYY-MM-DDTHH:MM:SS`` in UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))


def monotonic_microseconds() -> int:
    """CLOCK_MONOTONIC in microseconds, as systemd's notify protocol wants it (``MONOTONIC_USEC``)."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
