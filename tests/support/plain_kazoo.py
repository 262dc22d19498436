# SPDX-License-Identifier: Apache-2.0
"""Kazoo as it comes."""

from __future__ import annotations

from typing import Any

from kazoo.client import KazooClient
from kazoo.protocol.connection import ConnectionHandler


class PlainKazoo(KazooClient):  # type: ignore[misc]  # no type hints upstream
    """A KazooClient with Kazoo's own connection handler.

    Importing Zuul replaces the handler of every KazooClient in the process by one that only works with Zuul's client.
    """

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._connection = ConnectionHandler(self, self._conn_retry.copy(), logger=self.logger)
