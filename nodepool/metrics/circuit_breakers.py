# SPDX-License-Identifier: Apache-2.0
"""Providers whose circuit breaker is open, because their cloud keeps failing. Nodepool 11 has no such metric."""

from __future__ import annotations

import socket

from nodepool.metrics.catalog import CIRCUIT_OPEN, CIRCUIT_OPENED
from nodepool.metrics.process import REGISTRY


def report(provider: str, opens: bool) -> None:
    """Note that a circuit breaker opens or closes. Neither blocks nor raises.

    :param provider: name of the provider.
    """
    REGISTRY.set(CIRCUIT_OPEN.series(socket.gethostname(), provider), int(opens))
    if opens:
        REGISTRY.count(CIRCUIT_OPENED.series(provider))
