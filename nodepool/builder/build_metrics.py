# SPDX-License-Identifier: Apache-2.0
"""Reports to the metrics of this process what its builder builds."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from nodepool.builder.running_builds import RunningBuilds
from nodepool.clock import wall_time
from nodepool.config.image_use import wanted_images
from nodepool.metrics.builds import build_gauges, running_gauges
from nodepool.metrics.registry import Registry
from nodepool.model.image_view import ImagesView

if TYPE_CHECKING:
    from nodepool.config.objects import Config

#: Groups of gauges.
GROUP: Final = "builds"
RUNNING_GROUP: Final = "running builds"


class BuildMetrics:
    """:param images: all images as they are known.

    :param workers: threads that build.
    :param clock: seconds since the epoch.
    """

    def __init__(
        self,
        registry: Registry,
        images: Callable[[], ImagesView],
        config: Callable[[], Config],
        running: RunningBuilds,
        workers: int,
        clock: Callable[[], float] = wall_time,
    ) -> None:
        self._registry = registry
        self._images = images
        self._config = config
        self._running = running
        self._workers = workers
        self._clock = clock
        self._builder = socket.getfqdn()

    def publish(self) -> None:
        """What is now. Any thread; does not block."""
        paused = {name: image.paused for name, image in wanted_images(self._config()).images.items()}
        builds = self._running.current()
        building = [build.image for build in builds]
        self._registry.replace(GROUP, build_gauges(self._builder, self._workers, self._images(), paused, building))
        now = self._clock()
        running = {build.image: (max(0.0, now - build.since), build.estimate) for build in builds}
        self._registry.replace(RUNNING_GROUP, running_gauges(self._builder, running))
