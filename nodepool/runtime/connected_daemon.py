# SPDX-License-Identifier: Apache-2.0
"""`ConnectedDaemon`: how a daemon that works with ZooKeeper begins, runs and ends (rules G)."""

from __future__ import annotations

import abc
import logging
import threading
from typing import TYPE_CHECKING, Final

from nodepool.config.loader import ConfigSource
from nodepool.exceptions import ZKConnectionError
from nodepool.guard import Guard
from nodepool.runtime import banner, connection
from nodepool.runtime.file_watch import FileWatch
from nodepool.runtime.main_loop import LOOP_SECONDS, MainLoop
from nodepool.runtime.reload import Configuration
from nodepool.runtime.tracing import FLUSH_SECONDS, Tracing
from nodepool.version import release_string
from nodepool.zk.components import check_model_api
from nodepool.zk.transactions import ensure_path

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nodepool.config.objects import Config
    from nodepool.zk.client import ZooKeeperClient

#: `ConnectedDaemon.stop` waits so much longer than the end may take.
_MARGIN_SECONDS: Final = 5.0 + FLUSH_SECONDS


class ConnectedDaemon(abc.ABC):
    """Base of the launcher and of the builder.

    Who owns what: the main thread (the one that calls `run`) owns configuration, providers and the set of threads;
    others read them; they are replaced as a whole, never changed in place.

    :param config_path: configuration file.
    :param secure_path: secure file, or None.
    """

    log: logging.Logger
    #: What it is, for the log.
    kind: str
    #: Longest time that `end` may take.
    stop_seconds: float

    def __init__(self, config_path: str, secure_path: str | None = None) -> None:
        self.configuration = Configuration(
            ConfigSource(config_path, secure_path),
            {
                "the connection": lambda config: connection.follow(self.client, config),
                "traces": lambda config: self._tracing.follow(config),
                "providers": lambda config: self.apply(config),
            },
            self._look_again,
            self.log,
        )
        self.client: ZooKeeperClient
        self.loop = MainLoop(
            self._turn,
            lambda: self.client.connected,
            self.configuration.changed,
            FileWatch(self.configuration.files, self.log),
            self.log,
        )
        self._paths = (config_path, secure_path)
        #: What was logged last of what is served.
        self._served = ""
        self._stopped = threading.Event()
        self._running = False
        self._tracing = Tracing(self.log)

    # -- what each daemon does in its own way --

    def check(self, config: Config) -> None:
        """Refuse a configuration at the start. Raises ConfigError."""
        return

    def describe(self, config: Config) -> str:
        """What it does with a configuration, in one line for the log."""
        return banner.served(config)

    @abc.abstractmethod
    def build(self, client: ZooKeeperClient) -> None:
        """Make the parts that live as long as the daemon. Nothing of it runs yet.

        :param client: not connected yet: who listens to the caches is made before they follow ZooKeeper.
        """

    @abc.abstractmethod
    def begin(self) -> None:
        """Start everything. The connection is there; may block."""

    @abc.abstractmethod
    def run_once(self) -> None:
        """One turn of the main loop."""

    @abc.abstractmethod
    def apply(self, config: Config) -> None:
        """Put a configuration into effect, at the start and after each change; again with the same one after errors."""

    def look_again(self) -> None:
        """The configuration is another one: let those look that ask for it. Does not block."""
        return

    @abc.abstractmethod
    def end(self) -> None:
        """Stop everything; blocks at most `stop_seconds`."""

    # -- life --

    @property
    def ready(self) -> threading.Event:
        """Set once the daemon serves."""
        return self.loop.ready

    @property
    def last_loop(self) -> float:
        """Monotonic time of the last turn of the main loop, seconds."""
        return self.loop.last_turn

    @property
    def reload_errors(self) -> Sequence[str]:
        """Why the configuration files as they stand are not in effect, perhaps in part; empty = they are."""
        return self.configuration.trouble

    @property
    def connected(self) -> bool:
        """Is there a connection to ZooKeeper now? False before `start`."""
        return hasattr(self, "client") and self.client.connected

    def start(self) -> None:
        """Load the configuration and prepare the connection; does not block for long.

        :raises ConfigError: the configuration is refused, or a TLS file cannot be used.
        :raises ZKException: no servers are configured.
        """
        self.log.info("Nodepool %s %s starting", self.kind, release_string())
        config = self.configuration.load()
        self.log.info("%s", banner.sources(config, *self._paths))
        self.check(config)
        self.build(connection.make_client(config))

    def run(self) -> None:
        """Serve until `stop`; blocks. ``start`` must have been called."""
        self._running = True
        try:
            self._tracing.follow(self._config())
            if not self.loop.stopping.is_set() and self._connect():
                self.begin()
                self._tell_served()
                self.loop.run()
        finally:
            try:
                self.end()
            finally:
                self._tracing.stop()
                self._stopped.set()

    def stop(self) -> None:
        """End in order. Bounded."""
        self.loop.stop()
        if hasattr(self, "client") and not self.connected:
            self.client.disconnect()
        if self._running:
            self._stopped.wait(self.stop_seconds + _MARGIN_SECONDS)

    def join(self, timeout: float | None = None) -> None:
        """Wait until `run` has ended."""
        self._stopped.wait(timeout)

    def _connect(self) -> bool:
        try:
            self.client.connect()
        except ZKConnectionError:
            if self.loop.stopping.is_set():
                return False
            raise
        return True

    def _prepare_zookeeper(self, *roots: str) -> None:
        """Refuse to work beside newer components, and make directories; waits for ZooKeeper or for `stop`."""
        while not self.loop.stopping.is_set():
            try:
                check_model_api(self.client)
                for root in roots:
                    ensure_path(self.client, root)
                break
            except ZKConnectionError as error:
                self.log.warning("Not ready yet: %s", error)
                self.loop.stopping.wait(LOOP_SECONDS)

    def _turn(self) -> None:
        self.client.look_after()
        self.run_once()

    def _look_again(self) -> None:
        self.look_again()
        self._tell_served()

    def _tell_served(self) -> None:
        """Log what is served, unless it is what was logged last."""
        # Configurations of drivers are asked: whatever they raise, the daemon serves.
        with Guard(self.log, "What is served cannot be told"):
            text = self.describe(self._config())
            if text != self._served:
                self._served = text
                self.log.info("%s", text)

    def _config(self) -> Config:
        return self.configuration.current
