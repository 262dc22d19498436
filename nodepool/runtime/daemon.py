# SPDX-License-Identifier: Apache-2.0
"""How a daemon that works with ZooKeeper begins, runs and ends (rules G).

First its spans, then the daemon (`ConnectedDaemon`) with its main loop, then what it does when its servers change, and
the lines of the log that say what it serves.
"""

from __future__ import annotations

import abc
import logging
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from nodepool import log_names
from nodepool.clock import monotonic
from nodepool.config.loader import ConfigSource
from nodepool.config.zookeeper import connection_string, make_client
from nodepool.driver.framework.sections import UnavailableProviderConfig
from nodepool.exceptions import ZKConnectionError, ZKException
from nodepool.guard import Guard
from nodepool.model.event import counted, named
from nodepool.runtime.reload import Configuration
from nodepool.tracing import spans
from nodepool.tracing.sending import Exporter
from nodepool.version import release_string
from nodepool.zk.components import Registration, check_model_api
from nodepool.zk.transactions import ensure_path

if TYPE_CHECKING:
    from nodepool.config.objects import Config
    from nodepool.driver.config import ProviderConfig
    from nodepool.tracing.sending import OtlpSettings
    from nodepool.zk.client import ZooKeeperClient


# `Tracing`: spans of this daemon go where its configuration says.

#: At the end, and with a new configuration: so long for what waits to be sent.
FLUSH_SECONDS: Final = 5.0


class Tracing:
    """For the main thread of a daemon."""

    def __init__(self, log: logging.Logger) -> None:
        self.log = log
        self._settings: OtlpSettings | None = None
        self._exporter: Exporter | None = None

    def follow(self, config: Config) -> None:
        """Begin, end, or send elsewhere. Blocks at most `FLUSH_SECONDS`, if something changed. Does not raise."""
        settings = config.tracing_settings()
        if settings == self._settings and (settings is None) == (self._exporter is None):
            return
        self.stop()
        self._settings = settings
        if settings is None:
            return
        # Files and libraries: whatever is wrong with them, the daemon serves.
        with Guard(self.log, "No traces are recorded"):
            try:
                self._start(settings)
            except (OSError, ValueError) as error:
                self.log.error("No traces are recorded: %s", error)

    def _start(self, settings: OtlpSettings) -> None:
        # The libraries take 0.3 s to be imported.
        from nodepool.tracing.sending import OtlpTarget

        name = settings.endpoint or "the collector on this host"
        exporter = Exporter(OtlpTarget(settings), name)
        exporter.start()
        spans.use(exporter.record)
        self._exporter = exporter
        self.log.info("Traces go to %s by %s", name, settings.protocol)

    def stop(self) -> None:
        """Record nothing more, and send what waits. Blocks at most a little more than `FLUSH_SECONDS`."""
        exporter, self._exporter = self._exporter, None
        if exporter is not None:
            spans.stop_using(exporter.record)
            exporter.stop(FLUSH_SECONDS)


#: `ConnectedDaemon.stop` waits so much longer than the end may take.
_MARGIN_SECONDS: Final = 5.0 + FLUSH_SECONDS
#: One turn of the main loop (G-1).
LOOP_SECONDS: Final = 1.0
#: Between two looks at the configuration files (G-1).
LOOK_SECONDS: Final = 0.15
#: After a change others are waited for, because an editor makes several.
SETTLE_SECONDS: Final = 0.05


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
    #: Did it end because it was asked to, without a signal? Any other such end is an error.
    finished = False

    def __init__(self, config_path: str, secure_path: str | None = None) -> None:
        self.configuration = Configuration(
            ConfigSource(config_path, secure_path),
            {
                "the connection": lambda config: follow(self.client, config),
                "traces": lambda config: self._tracing.follow(config),
                "providers": lambda config: self.apply(config),
            },
            self._look_again,
            self.log,
        )
        self.client: ZooKeeperClient
        #: Set by `stop`.
        self.stopping = threading.Event()
        #: Set once the daemon serves: after its first turn with a connection.
        self.ready = threading.Event()
        #: Monotonic time of the end of the last turn of the main loop, seconds.
        self.last_loop = monotonic()
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
        return served(config)

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

    def on_stop_signal(self, number: int) -> bool:
        """Called in the main thread with each signal to stop, the first one before `stop`.

        :return: of a further one: does the daemon still end in order? False = it ends at once.
        """
        return False

    def look_again(self) -> None:
        """The configuration is another one: let those look that ask for it. Does not block."""
        return

    @abc.abstractmethod
    def end(self) -> None:
        """Stop everything; blocks at most `stop_seconds`."""

    # -- life --

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
        self.log.info("%s", sources(config, *self._paths))
        self.check(config)
        self.build(make_client(config))

    def run(self) -> None:
        """Serve until `stop`; blocks. ``start`` must have been called."""
        self._running = True
        try:
            self._tracing.follow(self._config())
            if not self.stopping.is_set() and self._connect():
                self.begin()
                self._tell_served()
                while not self.pause():
                    self.turn()
        finally:
            try:
                self.end()
            finally:
                self._tracing.stop()
                self._stopped.set()

    def stop(self) -> None:
        """End in order. Bounded."""
        self.stopping.set()
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
            if self.stopping.is_set():
                return False
            raise
        return True

    def _prepare_zookeeper(self, *roots: str) -> None:
        """Refuse to work beside newer components, and make directories; waits for ZooKeeper or for `stop`."""
        while not self.stopping.is_set():
            try:
                check_model_api(self.client)
                for root in roots:
                    ensure_path(self.client, root)
                break
            except ZKConnectionError as error:
                self.log.warning("Not ready yet: %s", error)
                self.stopping.wait(LOOP_SECONDS)

    def pause(self) -> bool:
        """Wait for the next turn, or until the configuration changed. True = it is time to stop."""
        until = monotonic() + LOOP_SECONDS
        while self.ready.is_set() and not self.stopping.wait(max(0.0, min(LOOK_SECONDS, until - monotonic()))):
            if self.configuration.changed():
                self.stopping.wait(SETTLE_SECONDS)
                break
            if monotonic() >= until:
                break
        return self.stopping.is_set()

    def turn(self) -> None:
        """One turn of the main loop. Does not raise; after an error it waits a little."""
        # The daemon serves on with what it has; the next turn tries again.
        with Guard(self.log, "Error in the main loop, going on") as guard:
            try:
                self.client.look_after()
                self.run_once()
                if self.client.connected:
                    self.ready.set()
                elif not self.ready.is_set():
                    self.stopping.wait(LOOP_SECONDS)
            except ZKConnectionError as error:
                self.log.warning("Main loop interrupted: %s", error)
                self.stopping.wait(LOOP_SECONDS)
        if guard.error is not None:
            self.stopping.wait(LOOP_SECONDS)
        self.last_loop = monotonic()

    def _unregister(self, entry: Registration) -> None:
        """Remove the daemon's entry of the registry; without a connection the entry ends with the session."""
        try:
            if self.client.connected:
                entry.unregister()
        except ZKException as error:
            entry.log.warning("Unregistering: %s", error)

    def _look_again(self) -> None:
        self.look_again()
        self._tell_served()

    def _tell_served(self) -> None:
        """Log what is served, unless it is what was logged last."""
        # Configurations of drivers are asked: whatever they raise, the daemon serves.
        with Guard(self.log, "What is served cannot be logged"):
            text = self.describe(self._config())
            if text != self._served:
                self._served = text
                self.log.info("%s", text)

    def _config(self) -> Config:
        return self.configuration.current


log = logging.getLogger(log_names.NODEPOOL)


def follow(client: ZooKeeperClient, config: Config) -> None:
    """Make a connection that of a changed configuration (G-13); what needs a restart is logged."""
    hosts = connection_string(config.zookeeper_servers)
    if hosts != client.hosts:
        try:
            client.reset_hosts(hosts)
        except ZKException as error:
            log.error("zookeeper-servers: %s; this takes effect after a restart", error)
    if config.tls_files != client.tls_files:
        log.warning("zookeeper-tls changed: this takes effect after a restart")


# What a daemon says of itself in the log when it begins, and when it serves something else (rule J-9).

#: Names that one list has at most.
MAX_NAMES: Final = 30


def sources(config: Config, path: str, secure_path: str | None) -> str:
    """The files of a configuration, and where ZooKeeper is."""
    files = path if secure_path is None else f"{path} and {secure_path}"
    servers = ", ".join(f"{one.host}:{one.port}{one.chroot or ''}" for one in config.zookeeper_servers)
    return f"Configuration: {files}; ZooKeeper: {servers}"


def served(config: Config) -> str:
    """Providers, pools and labels that a launcher serves."""
    usable, others = _split(config)
    labels = {label for provider in usable for pool in provider.pools.values() for label in pool.labels}
    providers = [f"{one.name} ({one.driver.name}: {named(list(one.pools), MAX_NAMES)})" for one in usable]
    parts = [_listed("provider", providers), _listed("label", sorted(labels))]
    without_pool = sorted(set(config.labels) - labels)
    if without_pool:
        parts.append(_listed("label", without_pool, " without a pool"))
    return "Serving " + ". ".join([*parts, *others])


def built(config: Config) -> str:
    """Images that a builder builds, and providers that it uploads them to."""
    usable, others = _split(config)
    images = sorted(name for name, image in config.diskimages.items() if not image.abstract)
    targets = [provider.name for provider in usable if provider.manage_images and getattr(provider, "diskimages", None)]
    parts = [_listed("diskimage", images), f"Uploading to {_listed('provider', targets)}"]
    return "Building " + ". ".join([*parts, *others])


def _split(config: Config) -> tuple[list[ProviderConfig], list[str]]:
    """Providers that can be used, and what is logged of the others: the log has the cause of each already."""
    providers = config.providers
    unusable = [name for name, made in providers.items() if isinstance(made, UnavailableProviderConfig)]
    usable = [made for name, made in providers.items() if name not in unusable]
    return usable, [f"Not usable: {_listed('provider', unusable)}"] if unusable else []


def _listed(noun: str, names: Sequence[str], what: str = "") -> str:
    return f"{counted(len(names), noun)}{what}: {named(names, MAX_NAMES)}" if names else f"no {noun}{what}"
