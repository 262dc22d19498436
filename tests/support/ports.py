# SPDX-License-Identifier: Apache-2.0
"""Free TCP ports for servers that tests start."""

from __future__ import annotations

import os
import socket
from contextlib import ExitStack


def free_ports(count: int, address: str = "127.0.0.1") -> list[int]:
    """``count`` different ports that nobody listens on at ``address``.

    They come from below the kernel's ephemeral range where possible, so that an outgoing connection of a
    test that runs meanwhile does not take one before the server binds it.
    """
    low, high = _outside_ephemeral_range()
    with ExitStack() as held:
        found: list[int] = []
        for port in _candidates(low, high):
            probe = held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            try:
                probe.bind((address, port))
            except OSError:
                continue
            found.append(probe.getsockname()[1])
            if len(found) == count:
                return found
    raise RuntimeError(f"no {count} free TCP ports on {address} between {low} and {high}")


def _outside_ephemeral_range() -> tuple[int, int]:
    try:
        with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as file:
            first = int(file.read().split()[0])
    except (OSError, ValueError):
        first = 32768
    return (10240, first) if first > 11264 else (first, 61000)


def _candidates(low: int, high: int) -> list[int]:
    # The system's generator on purpose: the order of tests is random with a fixed seed, and two suites
    # that run at once with the same seed must not choose the same ports.
    from random import SystemRandom

    # Processes of pytest-xdist that run at once have ports of their own: one that was found free is bound later.
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    ports = range(low + worker, high, int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))
    return SystemRandom().sample(ports, min(2000, len(ports)))
