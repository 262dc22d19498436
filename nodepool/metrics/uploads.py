# SPDX-License-Identifier: Apache-2.0
"""Gauges of the uploads of a builder as pure values (reference/metrics 6)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from nodepool.metrics import catalog
from nodepool.metrics.registry import Series

IDLE: Final = 0
UPLOADING: Final = 2
PAUSED: Final = 3

#: Image and provider.
_Place = tuple[str, str]


def upload_gauges(
    builder: str, paused: Mapping[_Place, bool], running: Collection[_Place], workers: int
) -> dict[Series, float]:
    """What a builder uploads.

    :param builder: FQDN.
    :param paused: every image that a provider uses -> are its uploads paused?
    :param running: uploads that run now.
    :param workers: threads that upload.
    """
    gauges: dict[Series, float] = {}
    for place, is_paused in paused.items():
        state = UPLOADING if place in running else PAUSED if is_paused else IDLE
        gauges[catalog.UPLOAD_STATE.series(builder, *place)] = state
    gauges[catalog.CURRENT_UPLOADS.series(builder)] = len(running)
    gauges[catalog.UPLOAD_WORKERS.series(builder)] = workers
    return gauges


def progress_gauges(builder: str, running: Mapping[_Place, tuple[float, float]]) -> dict[Series, float]:
    """How far the uploads of a builder are.

    :param running: uploads that run now -> percent, bytes per second.
    """
    gauges: dict[Series, float] = {}
    for place, (percent, speed) in running.items():
        gauges[catalog.UPLOAD_PROGRESS.series(builder, *place)] = percent
        gauges[catalog.UPLOAD_SPEED.series(builder, *place)] = speed
    return gauges
