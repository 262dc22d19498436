# SPDX-License-Identifier: Apache-2.0
"""How long requests waited (reference/metrics 9)."""

from __future__ import annotations

from collections.abc import Iterable

from nodepool.metrics.catalog import REQUEST_WAIT
from nodepool.metrics.process import REGISTRY


def report(labels: Iterable[str], outcome: str, seconds: float) -> None:
    """Note that a request ended. Neither blocks nor raises.

    :param labels: of its nodes.
    :param outcome: ``fulfilled`` or ``failed``.
    :param seconds: since it was submitted; of clocks of two hosts, so it may be a little less than 0.
    """
    for label in sorted(set(labels)):
        REGISTRY.time(REQUEST_WAIT.series(label, outcome), max(0.0, seconds))
