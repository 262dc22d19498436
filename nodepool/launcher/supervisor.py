# SPDX-License-Identifier: Apache-2.0
"""`NodePool`: the main thread of a launcher (rules G).

Every moving part is made here: the connection, the caches, the providers, one `PoolWorker` a provider-pool, and
the workers that clean up, keep min-ready nodes and send statistics.
"""

from __future__ import annotations

import logging
import socket
import threading
from typing import TYPE_CHECKING, Final, TypeVar

from nodepool.clock import monotonic
from nodepool.config.loader import ConfigSource
from nodepool.driver.framework.tally import NodeTally
from nodepool.exceptions import ConfigError, ZKConnectionError, ZKException
from nodepool.launcher.cleanup_worker import CleanupWorker
from nodepool.launcher.deletion import DeletedNodeWorker
from nodepool.launcher.free_counts import FreeCounts
from nodepool.launcher.min_ready_worker import MinReadyWorker
from nodepool.launcher.pool.worker import PoolWorker
from nodepool.launcher.pool_registry import PoolRegistry
from nodepool.launcher.routing import Router
from nodepool.launcher.stats import make_stats_worker
from nodepool.model import component
from nodepool.runtime.connection import make_client, tls_files
from nodepool.runtime.providers import Providers
from nodepool.runtime.worker import Worker, stop_all
from nodepool.version import release_string
from nodepool.zk import paths
from nodepool.zk.client import connection_string
from nodepool.zk.components import Registration, check_model_api
from nodepool.zk.nodepool_cache import NodepoolCache
from nodepool.zk.transactions import ensure_path
from nodepool.zk.zookeeper import ZooKeeper

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from nodepool.config.objects import Config
    from nodepool.driver.interface import Provider
    from nodepool.launcher.stats_worker import StatsWorker
    from nodepool.model.quota import QuotaInformation
    from nodepool.zk.client import ZooKeeperClient

W = TypeVar("W", bound=Worker)

#: One turn of the main loop (G-1).
LOOP_SECONDS: Final = 1.0
#: So often it looks in between whether the configuration changed.
LOOK_SECONDS: Final = 0.2
#: Longest time that a stop may take in all.
STOP_SECONDS: Final = 20.0


class NodePool:
    """One launcher.

    Who owns what: the main thread (the one that calls `run`) owns configuration, providers and the set of workers;
    others read ``config``, `workers` and the providers, which are replaced as a whole, never changed in place.

    :param config_path: configuration file.
    :param secure_path: secure file, or None.
    """

    log = logging.getLogger("nodepool.NodePool")

    def __init__(self, config_path: str, secure_path: str | None = None) -> None:
        self._source = ConfigSource(config_path, secure_path)
        self.version = release_string()
        self.config: Config
        self.client: ZooKeeperClient
        self.cache: NodepoolCache
        self.free_counts: FreeCounts
        self.deletion: DeletedNodeWorker
        self.cleanup: CleanupWorker
        self._zk: ZooKeeper
        self._providers: Providers
        self._tenants: NodeTally
        self._registration: Registration
        self._min_ready: MinReadyWorker
        self._stats: StatsWorker | None = None
        self._workers: Mapping[tuple[str, str], PoolWorker] = {}
        #: Pools that are not configured any more and finish what runs.
        self._retiring: list[PoolWorker] = []
        self.pools: PoolRegistry
        self._stopping = threading.Event()
        self._stopped = threading.Event()
        self._running = False
        #: Told "reloading", and then the outcome in a few words; must not block.
        self.on_reload: Callable[[str], None] = lambda phase: None
        #: Set once the launcher serves.
        self.ready = threading.Event()
        #: Monotonic time of the last turn of the main loop, seconds.
        self.last_loop = monotonic()

    # -- life --

    def start(self) -> None:
        """Load the configuration and prepare the connection; does not block for long.

        :raises ConfigError: the configuration is refused.
        :raises ZKException, OSError: no servers are configured, or a TLS file cannot be read.
        """
        self.config = self._source.load()
        self.client = make_client(self.config)
        self._build()

    def _build(self) -> None:
        """Make the parts that live as long as the launcher. Nothing of it runs yet."""
        self.cache = NodepoolCache(self.client)
        self.free_counts = FreeCounts(self.cache.nodes)
        self._zk = ZooKeeper(self.client, self.cache)
        self._providers = Providers(self._zk)
        self.pools = PoolRegistry(self.cache.pools)
        self._tenants = NodeTally(self.cache.nodes, lambda node: [node.tenant_name] if node.tenant_name else [])
        hostname = socket.gethostname().partition(".")[0]
        self._registration = Registration(self.client, component.LauncherComponent(hostname, self.version))
        self.deletion = DeletedNodeWorker(self)
        self.cleanup = CleanupWorker(self)
        self._min_ready = MinReadyWorker(self)
        Router(self)

    def run(self) -> None:
        """Serve until `stop`; blocks. ``start`` must have been called."""
        self._running = True
        try:
            if not self._stopping.is_set() and self._connect():
                self._begin()
                while not self._pause():
                    self._guarded_loop()
        finally:
            try:
                self._end()
            finally:
                self._stopped.set()

    def stop(self) -> None:
        """End in order: stop intake, free what paused requests hold, unregister, stop providers. Bounded."""
        self._stopping.set()
        if hasattr(self, "client") and not self.client.connected:
            self.client.disconnect()
        if self._running:
            self._stopped.wait(STOP_SECONDS + 5)

    def join(self, timeout: float | None = None) -> None:
        """Wait until `run` has ended."""
        self._stopped.wait(timeout)

    def _connect(self) -> bool:
        try:
            self.client.connect()
        except ZKConnectionError:
            if self._stopping.is_set():
                return False
            raise
        return True

    def _begin(self) -> None:
        while not self._stopping.is_set():
            try:
                check_model_api(self.client)
                for root in (paths.NODES, paths.REQUESTS, paths.REQUEST_LOCKS):
                    ensure_path(self.client, root)
                break
            except ZKConnectionError as error:
                self.log.warning("Not ready yet: %s", error)
                self._stopping.wait(LOOP_SECONDS)
        self.cache.wait_ready(30)
        self._apply(self.config)
        self._stats = make_stats_worker(self)
        if self._stats is not None:
            self._stats.start()
        for worker in (self.deletion, self.cleanup, self._min_ready):
            worker.start()

    # -- the main loop --

    def _pause(self) -> bool:
        """Wait for the next turn of the main loop, or until the configuration changed; True = it is time to stop."""
        if not self.ready.is_set():
            return self._stopping.is_set()
        until = monotonic() + LOOP_SECONDS
        while not self._stopping.wait(LOOK_SECONDS):
            if monotonic() >= until or self._source.changed():
                return False
        return True

    def _guarded_loop(self) -> None:
        try:
            self.run_once()
            if self.client.connected:
                self.ready.set()
            elif not self.ready.is_set():
                self._stopping.wait(LOOP_SECONDS)
        except ZKConnectionError as error:
            self.log.warning("Main loop interrupted: %s", error)
            self._stopping.wait(LOOP_SECONDS)
        except Exception:
            # The launcher serves on with what it has; the next turn tries again.
            self.log.exception("Error in the main loop, going on")
            self._stopping.wait(LOOP_SECONDS)
        self.last_loop = monotonic()

    def run_once(self) -> None:
        """One turn: follow the configuration, keep every thread alive."""
        if self._source.changed():
            self._reload()
        if not self.client.connected:
            return
        self._registration.update(state=component.RUNNING)
        self._providers.retry_failed()
        self._update_workers()
        self._revive()
        self.cache.nodes.refresh_stale()

    def _reload(self) -> None:
        """G-8: a broken file changes nothing."""
        self.on_reload("reloading")
        outcome = "failed"
        try:
            outcome = "serving" if self._load_again() else "serving; the changed configuration file is refused"
        finally:
            self.on_reload(outcome)

    def _load_again(self) -> bool:
        try:
            config = self._source.load()
        except ConfigError as error:
            self.log.error("The configuration is refused, the running one stays:\n%s", error)
            return False
        self.log.info("Configuration changed")
        old, self.config = self.config, config
        if old.zookeeper_servers != config.zookeeper_servers:
            try:
                self.client.reset_hosts(connection_string(config.zookeeper_servers))
            except ZKException as error:
                self.log.error("zookeeper-servers: %s; this takes effect after a restart", error)
        if tls_files(old) != tls_files(config):
            self.log.warning("zookeeper-tls changed: this takes effect after a restart")
        self._apply(config)
        return True

    def _apply(self, config: Config) -> None:
        # Pools that go stop before their provider does.
        wanted = {(name, pool) for name, provider in config.providers.items() for pool in provider.pools}
        self._retire([key for key in self._workers if key not in wanted])
        self._providers.apply(config.providers)
        self._update_workers()
        for worker in self.workers():
            worker.request_changed("")
            worker.node_changed("")
        self.deletion.node_changed("")
        self._min_ready.changed()

    def _update_workers(self) -> None:
        """One worker for each pool of each provider that runs (G-7, G-10)."""
        running = self._providers.running
        wanted = {(name, pool) for name, provider in running.items() for pool in provider.provider.pools}
        self._retire([key for key in self._workers if key not in wanted])
        self._retiring = [worker for worker in self._retiring if worker.is_alive()]
        dead = [key for key, worker in self._workers.items() if not worker.is_alive()]
        new = [key for key in wanted if key not in self._workers] + dead
        if not new:
            return
        workers = dict(self._workers)
        for key in new:
            if key in dead:
                self.log.error("Pool worker %s died, starting another", workers[key].name)
                # Registered, but serving nobody, it would keep requests from failing.
                workers[key].entry.remove()
            workers[key] = PoolWorker(self, *key)
        self._workers = workers
        for key in new:
            workers[key].start()

    def _retire(self, keys: list[tuple[str, str]]) -> None:
        """Let pools finish what runs; they end by themselves."""
        gone = [self._workers[key] for key in keys]
        self._retiring = [*self._retiring, *gone]
        self._workers = {key: worker for key, worker in self._workers.items() if key not in keys}
        for worker in gone:
            worker.retire()

    def _revive(self) -> None:
        """Threads outlive every exception; this is for the case that one does not (G-1)."""
        if not self.deletion.is_alive():
            self.deletion = self._restart(DeletedNodeWorker(self))
        if not self.cleanup.is_alive():
            self.cleanup = self._restart(CleanupWorker(self))
        if not self._min_ready.is_alive():
            self._min_ready = self._restart(MinReadyWorker(self))

    def _restart(self, worker: W) -> W:
        self.log.error("Thread %s died, starting another", worker.name)
        worker.start()
        return worker

    def _end(self) -> None:
        deadline = monotonic() + STOP_SECONDS
        workers = [self._min_ready, self.cleanup, self.deletion, *self.workers(), *self._retiring]
        for worker in workers:
            worker.stop()
        if self._stats is not None:
            self._stats.stop()
            self._stats.join(5)
        stop_all(workers, 10.0)
        self._providers.stop(max(1.0, deadline - monotonic()))
        try:
            if self.client.connected:
                self._registration.unregister()
        except ZKException as error:
            self.log.warning("Unregistering: %s", error)
        self.client.disconnect()
        self.log.info("Stopped")

    # -- what workers ask --

    def getZK(self) -> ZooKeeper:
        return self._zk

    def providers(self) -> Mapping[str, Provider]:
        """Providers that run, by name."""
        return self._providers.running

    def provider_or_none(self, name: str | None) -> Provider | None:
        """The provider if it runs here; None = not ours, or broken."""
        return self._providers.running.get(name or "")

    def workers(self) -> list[PoolWorker]:
        return list(self._workers.values())

    def worker_of(self, key: tuple[str | None, str | None]) -> PoolWorker | None:
        return self._workers.get((key[0] or "", key[1] or ""))

    def workers_of(self, provider_name: str) -> list[PoolWorker]:
        """Pool workers of a provider, also those that retire."""
        return [w for w in (*self._workers.values(), *self._retiring) if w.provider_name == provider_name]

    def requests_in_progress(self) -> set[str]:
        """Requests that this launcher holds."""
        workers = [*self.workers(), *self._retiring]
        return {handler.request.key for worker in workers for handler in list(worker.handlers)}

    def tenant_use(self, tenant_name: str) -> QuotaInformation:
        """What all nodes of a tenant use, of all providers, as far as it is known.

        What changed under somebody's lock is read now, and counts the next time.
        """
        self.cache.nodes.refresh_stale()
        return self._tenants.used(tenant_name)[0]

    def lock_dir_lingers(self, request_id: str) -> None:
        self.deletion.lingering_lock_dirs.add(request_id)

    def something_changed(self, request_id: str = "") -> None:
        """For workers that count: nodes, requests or pools changed. Does not block."""
        self._min_ready.changed(request_id)
        if self._stats is not None:
            self._stats.changed()
