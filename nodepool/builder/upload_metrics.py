# SPDX-License-Identifier: Apache-2.0
"""Reports to the metrics of this process what its builder uploads."""

from __future__ import annotations

import math
import socket
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from nodepool.builder.running_uploads import RunningUploads
from nodepool.clock import monotonic
from nodepool.config.image_use import wanted_images
from nodepool.metrics.registry import Registry
from nodepool.metrics.uploads import progress_gauges, upload_gauges

if TYPE_CHECKING:
    from nodepool.config.objects import Config

#: Groups of gauges.
GROUP: Final = "uploads"
PROGRESS_GROUP: Final = "progress of uploads"
#: Between two times at which it is told how far uploads are.
PROGRESS_SECONDS: Final = 5.0


class UploadMetrics:
    """Any thread; does not block. ``_lock`` guards ``_told_at``.

    :param workers: threads that upload.
    :param clock: monotonic seconds.
    """

    def __init__(
        self,
        registry: Registry,
        config: Callable[[], Config],
        running: RunningUploads,
        workers: int,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._registry = registry
        self._config = config
        self._running = running
        self._workers = workers
        self._clock = clock
        self._builder = socket.getfqdn()
        self._lock = threading.Lock()
        self._told_at = -math.inf

    def publish(self) -> None:
        """What is now."""
        providers = wanted_images(self._config()).providers
        paused = {(image, name): use.paused for name, images in providers.items() for image, use in images.items()}
        running = {(key.image, key.provider) for key in self._running.states()}
        self._registry.replace(GROUP, upload_gauges(self._builder, paused, running, self._workers))

    def progress(self) -> None:
        """An upload has begun, ended or got on: how far all are, but not as often as that."""
        states = self._running.states()
        now = self._clock()
        with self._lock:
            if states and now - self._told_at < PROGRESS_SECONDS:
                return
            self._told_at = now
        running = {(key.image, key.provider): (state.percent, state.bytes_per_second) for key, state in states.items()}
        self._registry.replace(PROGRESS_GROUP, progress_gauges(self._builder, running))
