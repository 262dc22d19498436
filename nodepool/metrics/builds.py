# SPDX-License-Identifier: Apache-2.0
"""Builds of images: their ends, and what a builder does with each image (reference/metrics 6)."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from nodepool.metrics import catalog
from nodepool.metrics.gauges import Gauges
from nodepool.metrics.process import REGISTRY
from nodepool.model import states
from nodepool.model.image_view import ImagesView, ImageView

#: Values of the state of an image.
IDLE, BUILDING, PAUSED = 0, 1, 3


def report_end(image: str, status: int, seconds: float, now: float) -> None:
    """Note the end of a build. Neither blocks nor raises.

    :param status: exit code; 0 = it succeeded.
    :param seconds: how long it took.
    :param now: seconds since the epoch.
    """
    REGISTRY.set(catalog.BUILD_RESULT.series(image), status)
    REGISTRY.time(catalog.BUILD_DURATION.series(image), seconds)
    REGISTRY.set(catalog.LAST_BUILD.series(image), int(now))


def report_sizes(image: str, sizes: Mapping[str, int]) -> None:
    """Note the size of a ready build.

    :param sizes: format -> bytes on the disk.
    """
    for image_format, size in sizes.items():
        REGISTRY.set(catalog.BUILD_SIZE.series(image, image_format), size)


def is_pending(view: ImageView) -> bool:
    """Is a request for a build still to be served (reference/zookeeper 6.3)?"""
    served = view.build_locked and bool(view.builds_in(states.BUILDING))
    return view.build_requested is not None and not served


def build_gauges(
    builder: str, workers: int, view: ImagesView, paused: Mapping[str, bool], building: Collection[str]
) -> Gauges:
    """What a builder does with its images.

    :param builder: FQDN of its host.
    :param workers: threads that build.
    :param paused: image of its configuration -> is it paused there?
    :param building: images that are being built here, each as often as it is.
    """
    pending = {name: is_pending(image) for name, image in view.images.items()}
    gauges: Gauges = {
        catalog.BUILD_REQUESTS.series(): sum(pending.values()),
        catalog.CURRENT_BUILDS.series(builder): len(building),
        catalog.BUILD_WORKERS.series(builder): workers,
    }
    for name in {*paused, *pending}:
        gauges[catalog.BUILD_REQUESTS_OF_IMAGE.series(name)] = int(pending.get(name, False))
    for name, is_paused in paused.items():
        state = BUILDING if name in building else PAUSED if is_paused or view.image(name).paused else IDLE
        gauges[catalog.BUILD_STATE.series(builder, name)] = state
    return gauges
