# SPDX-License-Identifier: Apache-2.0
"""The statsd client: configured by the environment, and harmless to the threads that send.

A metric must never delay or break a worker. So the socket does not block, a datagram that cannot be sent is dropped,
and a host name is only resolved at the start and, after a failure, by callers of `resolve`. After the client come the
metrics of this process.
"""

from __future__ import annotations

import functools
import logging
import os
import socket
import threading
from collections.abc import Mapping
from typing import Any, Final

from statsd.client.base import StatsClientBase
from statsd.client.udp import Pipeline

from nodepool.metrics.registry import Registry

DEFAULT_HOST: Final = "localhost"
DEFAULT_PORT: Final = 8125

#: Fits into one Ethernet frame over IPv4 and IPv6, so that datagrams are not fragmented.
MAX_DATAGRAM_BYTES: Final = 1432

log = logging.getLogger("nodepool.Stats")


class StatsdClient(StatsClientBase):  # type: ignore[misc]
    """Sends gauges, counters and timers by UDP; safe to use from any thread.

    Methods as in the `statsd` package: ``gauge(name, value)``, ``incr(name, count)``, ``timing(name, ms)``,
    ``pipeline()``. None of them raises or blocks.

    :param host: name or address (IPv4 or IPv6) of the server.
    :param port: UDP port.
    """

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self.port = port
        # Names of the statsd package; its Pipeline reads them.
        self._prefix = None
        self._maxudpsize = MAX_DATAGRAM_BYTES
        self._lock = threading.Lock()
        self._target: tuple[socket.socket, Any] | None = None
        self._warned = False

    @property
    def resolved(self) -> bool:
        """Is the address known? Until then everything sent is dropped."""
        return self._target is not None

    def resolve(self) -> bool:
        """Look the address up if that has not worked yet. May block as long as the resolver takes.

        :return: `resolved`. A failure is logged once, not raised.
        """
        if self.resolved:
            return True
        try:
            family, _, _, _, address = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_DGRAM)[0]
            endpoint = socket.socket(family, socket.SOCK_DGRAM)
        except (OSError, UnicodeError) as error:
            if not self._warned:
                log.warning("statsd server %s:%s cannot be reached: %s. It is tried again", self.host, self.port, error)
                self._warned = True
            return False
        endpoint.setblocking(False)
        with self._lock:
            if self._target is None:
                self._target = (endpoint, address)
            else:
                endpoint.close()
        return True

    def close(self) -> None:
        """Close the socket; what is sent afterwards is dropped."""
        with self._lock:
            target, self._target = self._target, None
        if target is not None:
            target[0].close()

    def pipeline(self) -> Any:
        """Collects metrics and sends them in few datagrams: ``with client.pipeline() as pipe: pipe.gauge(...)``."""
        return Pipeline(self)

    def gauges(self, values: Mapping[str, float]) -> None:
        """Send many gauges: name -> value."""
        with self.pipeline() as pipe:
            for name, value in values.items():
                pipe.gauge(name, value)

    def _send(self, data: str) -> None:
        """Called by the base class and by pipelines with one datagram."""
        target = self._target
        if target is None:
            return
        try:
            # A stray surrogate in a name must not raise.
            target[0].sendto(data.encode("utf-8", "replace"), target[1])
        except OSError as error:
            # A full buffer, no route, or a socket that was just closed: the next value comes soon.
            log.debug("Metric not sent: %s", error)


def get_client(environ: Mapping[str, str] = os.environ) -> StatsdClient | None:
    """The client that ``STATSD_HOST`` and ``STATSD_PORT`` ask for, or None when neither is set.

    The one that is missing is localhost or 8125. May block while the host name is looked up; a name that cannot
    be resolved now is tried again with `StatsdClient.resolve` (the stats worker does that).
    """
    host = environ.get("STATSD_HOST", "")
    port_text = environ.get("STATSD_PORT", "")
    if not host and not port_text:
        return None
    port = int(port_text) if port_text.isascii() and port_text.isdigit() else 0 if port_text else DEFAULT_PORT
    if not 0 < port < 65536:
        log.error("No metrics are sent: STATSD_PORT is %r, but must be a number from 1 to 65535", port_text)
        return None
    client = StatsdClient(host or DEFAULT_HOST, port)
    client.resolve()
    return client


@functools.cache
def shared_client() -> StatsdClient | None:
    """The client of this process, made by `get_client` at the first call. Later calls do not block."""
    return get_client()


# The metrics of this process.

#: What everything in this process counts with. statsd gets it when its environment variables are set.
REGISTRY: Final = Registry(lambda: shared_client())
