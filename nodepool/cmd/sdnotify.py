# SPDX-License-Identifier: Apache-2.0
"""Messages to systemd: sd_notify(3), the datagram protocol that needs no library."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Mapping

from nodepool.clock import monotonic_microseconds

log = logging.getLogger("nodepool.cmd.sdnotify")


class Notifier:
    """Informs systemd about the state of the daemon; does nothing when systemd did not start us.

    :param environment: where ``NOTIFY_SOCKET``, ``WATCHDOG_USEC`` and ``WATCHDOG_PID`` are looked up.
    """

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        self._address = _address(environment.get("NOTIFY_SOCKET", ""))
        #: Seconds after which systemd kills us without a `watchdog` message; None = never.
        self.watchdog_seconds = _watchdog_seconds(environment) if self._address else None

    def ready(self, status: str = "serving") -> None:
        """The daemon is up, or has finished a reload.

        :param status: one line for ``systemctl status``.
        """
        self._send(f"READY=1\nSTATUS={status}")

    def reloading(self) -> None:
        """The daemon reads its configuration again; `ready` must follow."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={monotonic_microseconds()}")

    def stopping(self) -> None:
        """The daemon is on its way out."""
        self._send("STOPPING=1\nSTATUS=stopping")

    def watchdog(self) -> None:
        """The daemon is alive."""
        self._send("WATCHDOG=1")

    def _send(self, message: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
                # A full socket must not hold up the daemon.
                sock.setblocking(False)
                sock.sendto(message.encode(), self._address)
        except OSError as error:
            log.warning("Cannot notify systemd at %s: %s", self._address, error)


def _address(value: str) -> str:
    """The socket's address: a path, or with a leading ``@`` a name in the abstract namespace."""
    if value.startswith("@"):
        return "\0" + value[1:]
    return value if value.startswith("/") else ""


def _watchdog_seconds(environment: Mapping[str, str]) -> float | None:
    pid = environment.get("WATCHDOG_PID")
    if pid is not None and pid != str(os.getpid()):
        return None
    try:
        seconds = int(environment.get("WATCHDOG_USEC", "")) / 1e6
    except ValueError:
        return None
    return seconds if seconds > 0 else None
