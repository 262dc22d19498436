# SPDX-License-Identifier: Apache-2.0
"""`Exporter`: spans go to a collector in a thread of their own; who records one never waits."""

from __future__ import annotations

import logging
import math
import threading
from collections import deque
from collections.abc import Sequence
from typing import Final, Protocol

from nodepool.clock import monotonic
from nodepool.guard import Guard
from nodepool.metrics.catalog import SPANS
from nodepool.metrics.process import REGISTRY
from nodepool.tracing.span import Span

log = logging.getLogger("nodepool.tracing")

#: Spans that wait at most; what is beyond is dropped and counted.
MAX_WAITING: Final = 10_000
#: Spans that are sent at once.
BATCH: Final = 500
#: Seconds from a span until it is sent, so that more go with it.
DELAY_SECONDS: Final = 1.0
#: Seconds between two lines of the log about spans that are lost.
TELL_SECONDS: Final = 60.0


class SpanTarget(Protocol):
    """Where spans are sent."""

    def send(self, spans: Sequence[Span]) -> str:
        """Blocks for an answer. Returns why that failed, or nothing."""

    def close(self) -> None:
        """End what `send` waits for. Any thread; does not block for long."""


class Exporter:
    """A sink of the recorder.

    :param name: of the target, for the log.
    """

    def __init__(self, target: SpanTarget, name: str) -> None:
        self._target = target
        self._name = name
        # Appended to and taken from by different threads, which a deque allows.
        self._waiting: deque[Span] = deque()
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._told_at = -math.inf
        self._lost = 0
        self._thread = threading.Thread(target=self._run, name="SpanExporter", daemon=True)

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()

    def record(self, span: Span) -> None:
        """See `nodepool.tracing.recorder.SpanSink`."""
        if len(self._waiting) >= MAX_WAITING:
            REGISTRY.count(SPANS.series("dropped"))
            return
        self._waiting.append(span)
        if not self._wake.is_set():
            self._wake.set()

    def stop(self, timeout_seconds: float) -> bool:
        """Send what waits; blocks at most so long. Was all tried?"""
        self._stopping.set()
        self._wake.set()
        self._thread.join(timeout_seconds)
        done = not self._thread.is_alive()
        self._target.close()
        if not done:
            # What it waits for has been ended.
            self._thread.join(1.0)
        left = len(self._waiting)
        if left:
            REGISTRY.count(SPANS.series("dropped"), left)
            log.warning("Spans that were not sent to %s before the end: %d", self._name, left)
        return done

    def _run(self) -> None:
        while True:
            self._wake.wait()
            self._stopping.wait(DELAY_SECONDS)
            # Cleared before both looks: what comes meanwhile wakes it again.
            self._wake.clear()
            stopping = self._stopping.is_set()
            while self._waiting:
                batch = [self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))]
                sent = self._send(batch)
                if stopping and not sent:
                    return
            if stopping:
                return

    def _send(self, batch: Sequence[Span]) -> bool:
        """Blocks until it is sent, or is lost: False."""
        why = "an error that nobody foresaw, see above"
        # The libraries are others' and any error of theirs must not end the thread.
        with Guard(log, "Spans cannot be sent to %s", self._name):
            why = self._target.send(batch)
        REGISTRY.count(SPANS.series("dropped" if why else "sent"), len(batch))
        if not why:
            return True
        self._lost += len(batch)
        if monotonic() - self._told_at >= TELL_SECONDS:
            log.warning("Spans cannot be sent to %s, %d are lost: %s", self._name, self._lost, why)
            self._told_at, self._lost = monotonic(), 0
        return False
