# SPDX-License-Identifier: Apache-2.0
"""Tells the metrics of this process what its builder uploads."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from nodepool.builder.running_uploads import RunningUploads
from nodepool.config.image_use import wanted_images
from nodepool.metrics.registry import Registry
from nodepool.metrics.uploads import upload_gauges

if TYPE_CHECKING:
    from nodepool.config.objects import Config

#: The group of gauges.
GROUP: Final = "uploads"


class UploadMetrics:
    """:param workers: threads that upload."""

    def __init__(self, registry: Registry, config: Callable[[], Config], running: RunningUploads, workers: int) -> None:
        self._registry = registry
        self._config = config
        self._running = running
        self._workers = workers
        self._builder = socket.getfqdn()

    def publish(self) -> None:
        """What is now. Any thread; does not block."""
        providers = wanted_images(self._config()).providers
        paused = {(image, name): use.paused for name, images in providers.items() for image, use in images.items()}
        running = {
            (key.image, key.provider): (state.percent, state.bytes_per_second)
            for key, state in self._running.states().items()
        }
        self._registry.replace(GROUP, upload_gauges(self._builder, paused, running, self._workers))
