# SPDX-License-Identifier: Apache-2.0
"""``handler.pw.nodepool`` of 11.0.0: what a driver may ask of its launcher."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nodepool.driver.interface import Provider
    from nodepool.zk.zookeeper import ZooKeeper


class LauncherView:
    """Any thread may use it; nothing blocks.

    :param provider: the running provider of a name; None = there is none now.
    """

    def __init__(self, zk: ZooKeeper, provider: Callable[[str], Provider | None]) -> None:
        self.zk = zk
        self._provider = provider

    def getZK(self) -> ZooKeeper:
        """The connection to ZooKeeper."""
        return self.zk

    def getProviderManager(self, provider_name: str) -> Provider:
        """The running provider of a name. Raises KeyError: there is none now."""
        found = self._provider(provider_name)
        if found is None:
            raise KeyError(provider_name)
        return found
