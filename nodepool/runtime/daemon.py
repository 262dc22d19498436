# SPDX-License-Identifier: Apache-2.0
"""How a daemon that works with ZooKeeper begins, runs and ends (rules G).

First its spans, then the daemon (`ConnectedDaemon`), then what it is made of: connection, main loop, the lines of the
log that say what it serves, registration, and the wait for changes of its files.
"""

from __future__ import annotations

import abc
import contextlib
import logging
import os
import select
import socket
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from inotify_simple import INotify, flags

from nodepool import log_names
from nodepool.clock import monotonic, sleep
from nodepool.config.loader import ConfigSource
from nodepool.config.zookeeper import connection_string, refuse_bad_tls_files
from nodepool.driver.framework.sections import UnavailableProviderConfig
from nodepool.exceptions import ZKConnectionError, ZKException
from nodepool.guard import Guard
from nodepool.model import component
from nodepool.runtime.reload import Configuration
from nodepool.tracing import spans
from nodepool.tracing.sending import Exporter
from nodepool.version import release_string
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.components import Registration, check_model_api
from nodepool.zk.transactions import ensure_path

if TYPE_CHECKING:
    from nodepool.config.objects import Config
    from nodepool.driver.config import ProviderConfig
    from nodepool.tracing.sending import OtlpSettings


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
        self.log.info("%s", sources(config, *self._paths))
        self.check(config)
        self.build(make_client(config))

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


# The connection to ZooKeeper that a configuration describes.

log = logging.getLogger(log_names.NODEPOOL)


def make_client(config: Config) -> ZooKeeperClient:
    """The connection that a configuration describes; not connected yet.

    :raises ZKException: there are no servers.
    :raises ConfigError: a TLS file cannot be used.
    """
    if not config.zookeeper_servers:
        raise ZKException("no zookeeper-servers are configured")
    refuse_bad_tls_files(config)
    cert, key, ca = tls_files(config)
    return ZooKeeperClient(
        connection_string(config.zookeeper_servers),
        timeout=config.zookeeper_timeout,
        tls_cert=cert,
        tls_key=key,
        tls_ca=ca,
    )


def tls_files(config: Config) -> tuple[str | None, str | None, str | None]:
    """PEM files of certificate, key and CA."""
    return config.zookeeper_tls_cert, config.zookeeper_tls_key, config.zookeeper_tls_ca


def follow(client: ZooKeeperClient, config: Config) -> None:
    """Make a connection that of a changed configuration (G-13); what needs a restart is logged."""
    hosts = connection_string(config.zookeeper_servers)
    if hosts != client.hosts:
        try:
            client.reset_hosts(hosts)
        except ZKException as error:
            log.error("zookeeper-servers: %s; this takes effect after a restart", error)
    if tls_files(config) != client.tls_files:
        log.warning("zookeeper-tls changed: this takes effect after a restart")


# The main loop of a daemon (rules G-1, G-3).

#: One turn of the main loop (G-1).
LOOP_SECONDS: Final = 1.0


class MainLoop:
    """Makes turns, one a second, and one as soon as the configuration changed, until `stop`.

    :param turn: one turn; whatever it raises, the next one comes.
    :param connected: can ZooKeeper be reached? The daemon is ready after its first turn with a connection.
    :param changed: did the configuration change? Must not block.
    :param wait: ends a wait when `changed` is worth asking.
    """

    def __init__(
        self,
        turn: Callable[[], None],
        connected: Callable[[], bool],
        changed: Callable[[], bool],
        wait: FileWatch,
        log: logging.Logger,
    ) -> None:
        self.log = log
        self._turn = turn
        self._connected = connected
        self._changed = changed
        self._wait = wait
        #: Set by `stop`.
        self.stopping = threading.Event()
        #: Set once the daemon serves.
        self.ready = threading.Event()
        #: Monotonic time of the end of the last turn, seconds.
        self.last_turn = monotonic()

    def run(self) -> None:
        """Make turns until `stop`; blocks."""
        self._wait.open()
        try:
            while not self.pause():
                self.guarded_turn()
        finally:
            self._wait.close()

    def stop(self) -> None:
        """End after the turn that is being made. Any thread; does not block."""
        self.stopping.set()
        self._wait.wake()

    def pause(self) -> bool:
        """Wait for the next turn, or until the configuration changed. True = it is time to stop."""
        if not self.ready.is_set():
            return self.stopping.is_set()
        until = monotonic() + LOOP_SECONDS
        while not self.stopping.is_set():
            # First: when the last turn did not follow a change, e.g. because it ended early, turns must not race.
            self._wait.wait(max(0.0, until - monotonic()))
            if monotonic() >= until or self._changed():
                break
        return self.stopping.is_set()

    def guarded_turn(self) -> None:
        """One turn. Does not raise; after an error it waits a little."""
        # The daemon serves on with what it has; the next turn tries again.
        with Guard(self.log, "Error in the main loop, going on") as guard:
            try:
                self._turn()
                if self._connected():
                    self.ready.set()
                elif not self.ready.is_set():
                    self.stopping.wait(LOOP_SECONDS)
            except ZKConnectionError as error:
                self.log.warning("Main loop interrupted: %s", error)
                self.stopping.wait(LOOP_SECONDS)
        if guard.error is not None:
            self.stopping.wait(LOOP_SECONDS)
        self.last_turn = monotonic()


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
    usable, unusable = _split(config)
    labels = {label for provider in usable for pool in provider.pools.values() for label in pool.labels}
    parts = [_listed("provider", [_with_pools(provider) for provider in usable], "; ")]
    parts.append(_listed("label", sorted(labels)))
    without_pool = sorted(set(config.labels) - labels)
    if without_pool:
        parts.append(_listed("label", without_pool, what=" without a pool"))
    return "Serving " + ". ".join([*parts, *_not_served(unusable)])


def built(config: Config) -> str:
    """Images that a builder builds, and providers that it uploads them to."""
    usable, unusable = _split(config)
    images = sorted(name for name, image in config.diskimages.items() if not image.abstract)
    targets = [provider.name for provider in usable if provider.manage_images and getattr(provider, "diskimages", None)]
    parts = [_listed("diskimage", images), f"Uploading to {_listed('provider', targets)}"]
    return "Building " + ". ".join([*parts, *_not_served(unusable)])


def _split(config: Config) -> tuple[list[ProviderConfig], list[str]]:
    """Providers that can be used, and the names of the others."""
    providers = config.providers
    unusable = [name for name, made in providers.items() if isinstance(made, UnavailableProviderConfig)]
    return [made for name, made in providers.items() if name not in unusable], unusable


def _not_served(names: Sequence[str]) -> Iterable[str]:
    """The log has the cause of each already."""
    return [f"Not usable: {_listed('provider', names)}"] if names else []


def _with_pools(provider: ProviderConfig) -> str:
    pools = list(provider.pools)
    shown = ", ".join(pools[:MAX_NAMES])
    more = f" and {len(pools) - MAX_NAMES} more" if len(pools) > MAX_NAMES else ""
    return f"{provider.name} ({provider.driver.name}: {shown}{more})"


def _listed(noun: str, names: Sequence[str], separator: str = ", ", what: str = "") -> str:
    if not names:
        return f"no {noun}{what}"
    shown = separator.join(names[:MAX_NAMES])
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return f"{len(names)} {noun}{'s' if len(names) > 1 else ''}{what}: {shown}{more}"


# The entry of a daemon in the component registry (reference/zookeeper 7).


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


# Waits until the kernel reports a change of files (inotify), or until another thread asks for it.

#: So often who waits looks by itself where the kernel cannot tell of changes.
LOOK_SECONDS: Final = 0.2
#: So often it is made sure that the files are still those that are watched, if there is no other reason.
RENEW_SECONDS: Final = 10.0
#: After a change others are waited for: an editor makes several, and a busy directory must not make a busy loop.
SETTLE_SECONDS: Final = 0.05

#: A file was written and closed, was replaced by a renamed one, or has other times or permissions. That a file was made
#: is not asked for: it is empty then.
_CHANGES: Final = flags.CLOSE_WRITE | flags.MOVED_TO | flags.ATTRIB


class FileWatch:
    """What it reports is a hint that is never late by more than the wait, and may be for nothing.

    The directory of each file is watched, because editors and configuration management rename a new file to the old
    name, and Kubernetes replaces a symbolic link there. The file itself is watched, too: where it is mounted alone into
    a container, its directory hears of nothing. A file that another machine changes on a network file system is not
    told of.

    :param files: the paths of today; asked before each wait. Any of them may be missing.
    """

    def __init__(self, files: Callable[[], Iterable[str]], log: logging.Logger) -> None:
        self.log = log
        self._files = files
        self._inotify: INotify | None = None
        #: File descriptor that `wake` writes to; None = not open.
        self._wake: int | None = None
        self._lock = threading.Lock()
        self._poll = select.poll()
        #: What is watched, and until when it is believed to be.
        self._watched: tuple[str, ...] = ()
        self._watched_until = float("-inf")

    def open(self) -> None:
        """Begin. Not in the constructor, because a daemon closes all files when it goes to the background."""
        with self._lock:
            self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._poll.register(self._wake, select.POLLIN)
        self._watched_until = float("-inf")
        try:
            self._inotify = INotify()
        except OSError as error:
            # E.g. fs.inotify.max_user_instances is reached.
            self.log.info("The kernel does not report changed files (%s): they are checked every 0.2 s", error)
            return
        self._poll.register(self._inotify, select.POLLIN)

    def close(self) -> None:
        """End; `wake` does nothing then."""
        with self._lock:
            wake, self._wake = self._wake, None
        self._poll = select.poll()
        if wake is not None:
            os.close(wake)
        if self._inotify is not None:
            self._inotify.close()
            self._inotify = None

    def wake(self) -> None:
        """End the wait of now, or else the next one. Any thread; does not block."""
        with self._lock:
            if self._wake is not None:
                os.eventfd_write(self._wake, 1)

    def wait(self, seconds: float) -> None:
        """Block until a file may have changed, until `wake`, or for so many seconds."""
        if self._inotify is not None:
            self._watch(self._inotify)
        ready = self._poll.poll((seconds if self._inotify else min(seconds, LOOK_SECONDS)) * 1000)
        for descriptor, _ in ready:
            if descriptor == self._wake:
                os.eventfd_read(descriptor)
            elif self._inotify is not None:
                sleep(min(seconds, SETTLE_SECONDS))
                self._inotify.read(timeout=0)
                # One of them may be another file, or another directory, by now.
                self._watched_until = float("-inf")

    def _watch(self, inotify: INotify) -> None:
        files = tuple(self._files())
        if files == self._watched and monotonic() < self._watched_until:
            return
        self._watched, self._watched_until = files, monotonic() + RENEW_SECONDS
        for watched in dict.fromkeys(each for path in files for each in (os.path.dirname(path) or ".", path)):
            # It is missing, or may not be read, or there are too many watches: the main loop looks once a turn in any
            # case.
            with contextlib.suppress(OSError, ValueError):
                # Of one that is watched already this changes nothing.
                inotify.add_watch(watched, _CHANGES)
