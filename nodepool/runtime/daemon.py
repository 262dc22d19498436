# SPDX-License-Identifier: Apache-2.0
"""How a daemon that works with ZooKeeper begins, runs and ends (rules G).

First its spans, then the daemon (`ConnectedDaemon`) with its main loop, then what it does when its servers change, and
the lines of the log that say what it serves. Last its configuration, which follows its files.
"""

from __future__ import annotations

import abc
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from nodepool import log_names
from nodepool.clock import monotonic
from nodepool.config.loader import ConfigSource
from nodepool.config.objects import Config
from nodepool.config.zookeeper import connection_string, make_client
from nodepool.driver.config import ProviderConfig
from nodepool.driver.framework.sections import UnavailableProviderConfig
from nodepool.exceptions import ConfigError, ZKConnectionError, ZKException
from nodepool.guard import Guard
from nodepool.metrics.catalog import RELOADS
from nodepool.metrics.registry import REGISTRY
from nodepool.model.event import counted, named
from nodepool.plan.config_diff import config_changes
from nodepool.plan.retries import Backoff
from nodepool.tracing import spans
from nodepool.tracing.spans import Exporter, OtlpSettings, OtlpTarget
from nodepool.version import release_string
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.components import Registration, check_model_api
from nodepool.zk.transactions import ensure_path

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
        name = settings.endpoint or "the collector on this host"
        self._exporter = Exporter(OtlpTarget(settings), name)
        spans.use(self._exporter.record)
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
            self._tracing.follow(self.config())
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
            text = self.describe(self.config())
            if text != self._served:
                self._served = text
                self.log.info("%s", text)

    def config(self) -> Config:
        """What is in effect. Any thread."""
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


# `Configuration`: the configuration of a running daemon follows its files (rule G-8).

#: Changes of one reload that are logged one by one.
MAX_CHANGES: Final = 100
#: From a reload that failed to the next attempt.
RETRY: Final = Backoff(1.0, 60.0)
#: Why a file cannot be read, until its times change.
OF_THE_FILE: Final = (FileNotFoundError, IsADirectoryError, PermissionError)


class Configuration:
    """Owned by the main thread. Others read `current` and `trouble`, which are replaced as a whole, never in place.

    :param parts: what follows the configuration, by names for people, in order. Each puts one into effect. After an
        error, its own or that of another part, it is called again with the same one.
    :param look_again: called after the parts: `current` may be another one. Must not block.
    """

    def __init__(
        self,
        source: ConfigSource,
        parts: Mapping[str, Callable[[Config], None]],
        look_again: Callable[[], None],
        log: logging.Logger,
    ) -> None:
        self.log = log
        self.source = source
        self._parts = parts
        self._look_again = look_again
        #: The last one that is wholly in effect.
        self.current: Config
        #: The last one that can be used. It is `current`, unless it is not wholly in effect.
        self._next: Config
        #: What `_next` changes, and what cannot be used of the file as it was loaded last, one text each.
        self._changes: Sequence[str] = ()
        self._refused: Sequence[str] = ()
        #: Providers of `_next` whose sections cannot be used.
        self._unusable: Sequence[str] = ()
        #: Why the file is not in effect, perhaps in part, one text each. Empty = it is.
        self.trouble: Sequence[str] = ()
        #: What is done again at ``_due``, monotonic seconds, unless the file changes before; None = nothing.
        self._retry: Callable[[], str] | None = None
        self._due = 0.0
        self._failures = 0
        #: Given "reloading", and then the outcome in a few words; must not block.
        self.on_reload: Callable[[str], None] = lambda phase: None
        #: Called after a reload: is the new configuration in effect, and what does it change, or why is it not? One
        #: text each; must not block.
        self.on_outcome: Callable[[bool, Sequence[str]], None] = lambda ok, texts: None

    def load(self) -> Config:
        """Load for the first time. Raises ConfigError."""
        self.current = self._next = self.source.load()
        return self.current

    def changed(self) -> bool:
        """Has a file changed since the last load, whether that went well or not?"""
        return self.source.changed()

    def follow(self) -> None:
        """Load again if a file changed, or try again what failed. Does not raise; the log has what is wrong.

        A configuration that is refused changes nothing.
        """
        if self.changed():
            step, self._failures = self._load_again, 0
        elif self._retry is not None and monotonic() >= self._due:
            step = self._retry
        else:
            return
        self.on_reload("reloading")
        outcome = "serving; the changed configuration file is not in effect"
        # Whatever a driver raises where it is loaded, the next attempt may find it mended.
        with Guard(self.log, "Reload: the configuration could not be loaded") as guard:
            outcome = step()
        if guard.error is not None:
            self._failed(self._load_again, [f"the configuration could not be loaded: {_text(guard.error)}"])
        self.on_reload(outcome)

    def _load_again(self) -> str:
        """Load, and put into effect what can be used; returns the outcome in a few words."""
        try:
            config = self.source.load()
        except ConfigError as error:
            if isinstance(error.__cause__, OSError) and not isinstance(error.__cause__, OF_THE_FILE):
                # Such as too many open files: no file changes when it can be read again.
                raise
            self.log.error("The configuration is refused, the running one stays:\n%s", error)
            REGISTRY.count(RELOADS.series("refused"))
            self._refused = str(error).splitlines()
            self._ended(False, self._refused)
            # An earlier file may be in effect only in part.
            self._retry = None if self._next is self.current else self._put_into_effect
            return "serving; the changed configuration file is refused"
        made = config.providers.items()
        self._unusable = [name for name, provider in made if isinstance(provider, UnavailableProviderConfig)]
        kept = keep_usable(self._next, config)
        for name, reason in kept.items():
            self.log.error("Provider %s runs on with its old section, the new one cannot be used: %s", name, reason)
        self._next = config
        self._refused = [f"provider {name} runs on with its old section: {why}" for name, why in kept.items()]
        self._changes = ["what it changes is not known, the log says why"]
        # A driver's own classes are asked: whatever they raise, the configuration takes effect.
        with Guard(self.log, "What the configuration changes is not known"):
            self._changes = self._tell(self.current, config)
        return self._put_into_effect()

    def _put_into_effect(self) -> str:
        """See `_load_again`. A part that fails keeps no other from its turn."""
        config, failed, done = self._next, dict[str, Exception](), list[str]()
        for name, part in self._parts.items():
            with Guard(self.log, "Reload: %s could not be changed", name) as guard:
                part(config)
            if guard.error is None:
                done.append(name)
            else:
                failed[name] = guard.error
        if not failed:
            self.current, self._retry = config, None
        self._look_again()
        if failed:
            texts = [f"{name} could not be changed: {_text(error)}" for name, error in failed.items()]
            self._failed(self._put_into_effect, [*texts, f"changed: {', '.join(done) or 'nothing'}"])
            return "serving; the changed configuration file is not wholly in effect"
        REGISTRY.count(RELOADS.series("refused" if self._refused else "applied"))
        self._ended(True, self._changes)
        if self._refused:
            self._ended(False, self._refused)
        unusable = ", ".join(self._unusable)
        return f"serving; sections that cannot be used: {unusable}" if unusable else "serving"

    def _failed(self, retry: Callable[[], str], texts: Sequence[str]) -> None:
        """Try again later, and tell why."""
        self._failures += 1
        delay = RETRY.pause(self._failures)
        self._retry, self._due = retry, monotonic() + delay
        self.log.error("The reload failed, it is tried again in %g s: %s", delay, "; ".join(texts))
        if self._failures == 1:
            REGISTRY.count(RELOADS.series("failed"))
        told = [*texts, *self._refused]
        if told != self.trouble:
            self._ended(False, told)

    def _ended(self, ok: bool, texts: Sequence[str]) -> None:
        self.trouble = [] if ok else texts
        self.on_outcome(ok, texts)

    def _tell(self, old: Config, new: Config) -> list[str]:
        """Log what a configuration changes, one change a line; returns the texts."""
        changes = config_changes(old, new)
        for change in changes[:MAX_CHANGES]:
            extra = {change.kind: change.name} if change.kind in ("provider", "label", "tenant") else None
            self.log.info("Configuration changed: %s", change.text, extra=extra)
        if len(changes) > MAX_CHANGES:
            self.log.info("Configuration changed: %d more changes", len(changes) - MAX_CHANGES)
        if not changes:
            self.log.info("Configuration changed: no key has another value")
        return [change.text for change in changes]


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def keep_usable(old: Config, new: Config) -> dict[str, str]:
    """Give each provider whose new section cannot be used the old one, if that could be.

    A slip in a file must not stop what runs, e.g. end launches, or let nodes be missed by clean-up.

    :param new: changed in place.
    :return: name of each such provider -> what is wrong with its new section.
    """
    kept: dict[str, str] = {}
    for name, provider in new.providers.items():
        before = old.providers.get(name)
        if not isinstance(provider, UnavailableProviderConfig) or before is None:
            continue
        if isinstance(before, UnavailableProviderConfig):
            continue
        kept[name] = provider.reason
        new.providers[name] = before
        _announce(before, old, new)
    return kept


def _announce(provider: ProviderConfig, old: Config, new: Config) -> None:
    """Tell a configuration of a provider that was loaded with an older one, as its ``load`` would do."""
    for pool in provider.pools.values():
        for label in pool.labels:
            if label in new.labels:
                new.labels[label].pools.append(pool)
    for name in getattr(provider, "diskimages", None) or ():
        if name in new.diskimages and name in old.diskimages:
            # Which of the formats it has added is not known: one too many does no harm.
            new.diskimages[name].image_types |= old.diskimages[name].image_types
            new.diskimages[name].conversions |= old.diskimages[name].conversions
