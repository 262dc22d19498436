# SPDX-License-Identifier: Apache-2.0
"""The entry of a daemon in the component registry (reference/zookeeper 7)."""

from __future__ import annotations

import logging
import socket
from typing import TYPE_CHECKING

from nodepool import log_names
from nodepool.exceptions import ZKException
from nodepool.model import component
from nodepool.zk.components import Registration

if TYPE_CHECKING:
    from nodepool.zk.client import ZooKeeperClient


class DaemonRegistration:
    """For the main thread.

    :param kind: class of the entry.
    :param version: of this release.
    """

    log = logging.getLogger(log_names.COMPONENT_REGISTRY)

    def __init__(self, client: ZooKeeperClient, kind: type[component.Component], version: str) -> None:
        self._client = client
        self._entry = Registration(client, kind(socket.gethostname(), version))

    def keep(self) -> None:
        """Say that the daemon runs. Blocks for ZooKeeper unless that is known already. Raises ZKException."""
        self._entry.update(state=component.RUNNING)

    def remove(self) -> None:
        """Unregister; without a connection the entry ends with the session."""
        try:
            if self._client.connected:
                self._entry.unregister()
        except ZKException as error:
            self.log.warning("Unregistering: %s", error)
