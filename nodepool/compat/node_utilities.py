# SPDX-License-Identifier: Apache-2.0
"""The module `nodepool.nodeutils` of 11.0.0."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Final, Self

from nodepool.clock import monotonic, sleep
from nodepool.driver.framework import keyscan
from nodepool.exceptions import ConnectionTimeoutException

#: Seconds between two looks of `iterate_timeout`.
ITERATE_INTERVAL: Final = 2


def iterate_timeout(
    max_seconds: float, exc: type[Exception], purpose: str, interval: float = ITERATE_INTERVAL
) -> Iterator[int]:
    """Count from 1, with a pause before each further number; blocks.

    :param max_seconds: from the first number on.
    :param exc: raised when they are over.
    :param purpose: for its text.
    :param interval: of the pauses, seconds.
    """
    begun, count = monotonic(), 0
    while monotonic() < begun + max_seconds:
        count += 1
        yield count
        sleep(interval)
    raise exc(f"Timeout waiting for {purpose}")


def nodescan(ip: str, port: int = 22, timeout: float = 60, gather_hostkeys: bool = True) -> list[str]:
    """The host keys of a machine, ``"<type> <base64>"`` each; blocks.

    :param timeout: seconds.
    :param gather_hostkeys: False: it is enough that the port answers, and the result is empty.
    :raises ConnectionTimeoutException: it does not answer.
    """
    try:
        return list(keyscan.scan(ip, port, timeout=timeout, gather_keys=gather_hostkeys).host_keys)
    except keyscan.ScanFailed as failure:
        raise ConnectionTimeoutException(str(failure)) from failure


def set_node_ip(node: Any) -> None:
    """Set ``public_ipv4`` or ``public_ipv6`` to the first address of ``node.hostname``; blocks for the resolver.

    :raises OSError: the name is unknown.
    """
    found = socket.getaddrinfo(node.hostname, node.connection_port, type=socket.SOCK_STREAM)
    v4 = next((address[4][0] for address in found if address[0] == socket.AF_INET), None)
    v6 = next((address[4][0] for address in found if address[0] == socket.AF_INET6), None)
    if v4 is not None:
        node.public_ipv4 = v4
    elif v6 is not None:
        node.public_ipv6 = v6


class Timer:
    """``with Timer(log, "Listed servers"):`` logs how long that took, as debug."""

    def __init__(self, log: logging.Logger, msg: str) -> None:
        self.log = log
        self.msg = msg
        self._begun = 0.0

    def __enter__(self) -> Self:
        self._begun = monotonic()
        return self

    def __exit__(self, type: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.log.debug("%s in %s", self.msg, monotonic() - self._begun)


class Attributes:
    """An object with these attributes."""

    def __init__(self, **kw: Any) -> None:
        vars(self).update(kw)
