# SPDX-License-Identifier: Apache-2.0
"""`KazooLog`: the logger of a connection of Kazoo (rule J-4)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    _Adapter = logging.LoggerAdapter[logging.Logger]
else:
    _Adapter = logging.LoggerAdapter

#: How warnings about one attempt to connect begin.
ATTEMPTS: Final = ("Connection dropped", "Connection time-out", "Cannot resolve")


class KazooLog(_Adapter):
    """Without a connection Kazoo warns of each attempt to get one, about once a second and without the server.

    `nodepool.zk.client.ZooKeeperClient` logs the cause, once a minute; the attempts are for DEBUG.

    :param connected: is there a session?
    """

    def __init__(self, logger: logging.Logger, connected: Callable[[], bool]) -> None:
        super().__init__(logger, {})
        self._connected = connected

    def warning(self, msg: object, *args: object, **kwargs: Any) -> None:
        """Log a warning, or what is less than one."""
        attempt = str(msg).startswith(ATTEMPTS) and not self._connected()
        self.log(logging.DEBUG if attempt else logging.WARNING, msg, *args, **kwargs)
