# SPDX-License-Identifier: Apache-2.0
"""Builds of images: their ends, and what a builder does with each image (reference/metrics 6)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from nodepool.metrics import catalog
from nodepool.metrics.gauges import Gauges
from nodepool.metrics.process import REGISTRY
from nodepool.model import states
from nodepool.model.image_view import ImagesView, ImageView

#: Values of the state of an image.
IDLE, BUILDING, PAUSED = 0, 1, 3
#: What diskimage-builder does, in its own words, and what a builder calls the rest.
STEPS: Final = frozenset(
    {
        *("starting", "root", "extra-data", "pre-install", "install", "post-install", "post-root", "block-device"),
        *("pre-finalise", "finalise", "cleanup", "converting", "finishing", "completed"),
    }
)
OTHER_STEP: Final = "other"


def report_end(image: str, status: int, seconds: float, now: float) -> None:
    """Note the end of a build. Neither blocks nor raises.

    :param status: exit code; 0 = it succeeded.
    :param seconds: how long it took.
    :param now: seconds since the epoch.
    """
    REGISTRY.set(catalog.BUILD_RESULT.series(image), status)
    REGISTRY.time(catalog.BUILD_DURATION.series(image), seconds)
    REGISTRY.set(catalog.LAST_BUILD.series(image), int(now))


def report_steps(image: str, steps: Iterable[tuple[str, float]]) -> None:
    """Note how long the steps of a build took; one that was done more than once counts once, with its whole time.

    :param steps: name, seconds. Neither blocks nor raises.
    """
    times: dict[str, float] = {}
    for name, seconds in steps:
        # Any output may look like the begin of a step: names must not become without end.
        known = name if name in STEPS else OTHER_STEP
        times[known] = times.get(known, 0.0) + seconds
    for name, seconds in times.items():
        REGISTRY.time(catalog.BUILD_STEP.series(image, name), seconds)


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


def running_gauges(builder: str, running: Mapping[str, tuple[float, float | None]]) -> Gauges:
    """How far the builds of a builder are.

    :param builder: FQDN of its host.
    :param running: image -> seconds since its build began, and how long that may take; None = nobody knows.
    """
    gauges: Gauges = {}
    for image, (seconds, estimate) in running.items():
        gauges[catalog.BUILD_SECONDS.series(builder, image)] = seconds
        if estimate is not None:
            gauges[catalog.BUILD_ESTIMATE.series(builder, image)] = estimate
    return gauges
