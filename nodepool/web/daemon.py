# SPDX-License-Identifier: Apache-2.0
"""`WebDaemon`: the web pages in a process of their own, for sites whose launchers have enough to do."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from nodepool.runtime.daemon import ConnectedDaemon
from nodepool.runtime.worker import Parts, stop_all
from nodepool.web.parts import web_part
from nodepool.zk.caches import NodepoolCache
from nodepool.zk.zookeeper import ZooKeeper

if TYPE_CHECKING:
    from nodepool.config.objects import Config
    from nodepool.zk.client import ZooKeeperClient

#: Longest time that a stop may take.
STOP_SECONDS: Final = 10.0


class WebDaemon(ConnectedDaemon):
    """Caches and a web server; no providers. See the base class for who owns what, and for its parameters."""

    log = logging.getLogger("nodepool.web")
    kind = "web"
    stop_seconds = STOP_SECONDS

    def describe(self, config: Config) -> str:
        """Where the pages are, is told by the web server."""
        return ""

    def build(self, client: ZooKeeperClient) -> None:
        """Make the parts. Nothing of it runs yet."""
        self.client = client
        self.cache = NodepoolCache(client)
        self.zk = ZooKeeper(client, self.cache)
        self.parts = Parts([web_part(self, self._config())], self.log)

    def note(self, actor: str, subject: str, text: str) -> None:
        """:param actor: stands in the log already, with what was done; launchers tell of what they see."""

    def begin(self) -> None:
        """Serve at once: a page says that the caches are being filled. Does not block."""
        self.parts.start()

    def run_once(self) -> None:
        """One turn of the main loop."""
        self.configuration.follow()
        self.parts.revive()
        if self.client.connected:
            self.cache.nodes.refresh_stale()

    def apply(self, config: Config) -> None:
        """Nothing that is served depends on it but addresses, which stay until a restart."""

    def end(self) -> None:
        """Stop everything; blocks at most `STOP_SECONDS`."""
        stop_all(self.parts.threads(), STOP_SECONDS, self.log)
        self.client.disconnect()
        self.log.info("Stopped")
