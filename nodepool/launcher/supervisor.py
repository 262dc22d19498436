# SPDX-License-Identifier: Apache-2.0
"""`NodePool`: a launcher (rules G).

All parts of a launcher are made here and are given what they use: the connection, the caches, the providers, one
`PoolWorker` per pool of a provider, and the table of the other threads.
"""

from __future__ import annotations

import logging
import socket
from typing import TYPE_CHECKING, Any, Final

from nodepool import log_names
from nodepool.clock import monotonic
from nodepool.launcher.cleanup_worker import CleanupWorker
from nodepool.launcher.deleted_node_worker import DeletedNodeWorker
from nodepool.launcher.event_ring import EventRing
from nodepool.launcher.free_counts import FreeCounts
from nodepool.launcher.hold_events import HoldEvents
from nodepool.launcher.label_hints import LabelHints
from nodepool.launcher.maintenance_events import ImageEvents, MaintenanceEvents
from nodepool.launcher.maintenance_state import MaintenanceState, names_of_this_host
from nodepool.launcher.maintenance_worker import MaintenanceWorker
from nodepool.launcher.min_ready_worker import MinReadyWorker
from nodepool.launcher.pool.context import PoolContext
from nodepool.launcher.pool.worker import PoolWorker
from nodepool.launcher.pool_registry import PoolRegistry
from nodepool.launcher.pool_threads import PoolThreads
from nodepool.launcher.reload_events import ReloadEvents
from nodepool.launcher.routing import Router
from nodepool.launcher.self_report import SelfReport
from nodepool.launcher.stats import make_stats_worker
from nodepool.launcher.status_worker import StatusWorker
from nodepool.launcher.tenant_use import TenantUse
from nodepool.metrics.process import REGISTRY
from nodepool.metrics.statsd import shared_client
from nodepool.model.component import LauncherComponent
from nodepool.model.event import What
from nodepool.runtime.call_metrics import CallMetrics
from nodepool.runtime.call_watch import CallWatch
from nodepool.runtime.connected_daemon import ConnectedDaemon
from nodepool.runtime.parts import Part, Parts, stop_all
from nodepool.runtime.providers import Providers
from nodepool.runtime.registration import DaemonRegistration
from nodepool.version import release_string
from nodepool.zk import paths
from nodepool.zk.nodepool_cache import NodepoolCache
from nodepool.zk.status import StatusWriter
from nodepool.zk.zookeeper import ZooKeeper

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from nodepool.config.objects import Config
    from nodepool.launcher.stats_worker import StatsWorker
    from nodepool.zk.client import ZooKeeperClient

#: Longest time that a stop may take in all.
STOP_SECONDS: Final = 20.0
#: The part of it that the threads of the launcher get.
THREADS_STOP_SECONDS: Final = 10.0


class NodePool(ConnectedDaemon):
    """One launcher. See the base class for who owns what, and for its first parameters.

    :param more_parts: make further threads, from the launcher that is being built and its configuration.
    """

    log = logging.getLogger(log_names.NODEPOOL)
    kind = "launcher"
    stop_seconds = STOP_SECONDS

    def __init__(
        self,
        config_path: str,
        secure_path: str | None = None,
        more_parts: Sequence[Callable[[NodePool, Config], Part[Any]]] = (),
    ) -> None:
        super().__init__(config_path, secure_path)
        self._config_path = config_path
        self._more_parts = more_parts
        #: None = no statsd server is configured.
        self.stats: Part[StatsWorker] | None = None
        self._call_metrics = CallMetrics(REGISTRY)
        #: Was it drained, and does it end because it has nothing left to do?
        self.finished = False

    def build(self, client: ZooKeeperClient) -> None:
        """Make the parts that live as long as the launcher. Nothing of it runs yet.

        :param client: not connected yet: who listens to the caches is made before they follow ZooKeeper.
        """
        version = release_string()
        self.client = client
        self.cache = NodepoolCache(client)
        self.free_counts = FreeCounts(self.cache.nodes)
        self.events = EventRing()
        self.reload_events = ReloadEvents(self.events, socket.gethostname(), self._config_path)
        HoldEvents(self.cache.nodes, self.events, socket.gethostname())
        MaintenanceEvents(self.cache.maintenance, self.events, socket.gethostname())
        ImageEvents(self.cache.images, self.events, socket.gethostname())
        self.configuration.on_outcome = self.reload_events.ended
        self.zk = ZooKeeper(client, self.cache)
        self.providers = Providers(self.zk)
        self.pools = PoolRegistry(self.cache.pools)
        self.pool_threads = PoolThreads(lambda provider, pool: PoolWorker(self._pool_context, provider, pool))
        self._registration = DaemonRegistration(client, LauncherComponent, version)
        self._status_writer = StatusWriter(client)
        self.maintenance = MaintenanceState(self.cache.maintenance.snapshot, names_of_this_host())
        self._make_parts()
        tenant_use = TenantUse(self.cache)
        self._pool_context = PoolContext(
            version,
            self.zk,
            self.cache,
            self.pools,
            self.free_counts,
            self.events,
            self.maintenance,
            label_hint=LabelHints(self.pools.registered, lambda: self.configuration.current.labels).hint,
            provider=self.providers.get,
            tenant_limits=self._tenant_limits,
            tenant_use=tenant_use.used,
            siblings=self.pool_threads.current,
            siblings_of=self.pool_threads.of_provider,
            known_tenant_use=tenant_use.known,
            config_digest=self._digest,
            passed=lambda pool_id: self.status.current.changed(pool_id),
            lock_dir_lingers=lambda request_id: self.deletion.current.lingering_lock_dirs.add(request_id),
        )
        self._router = Router(
            self.cache,
            self.pools,
            self.pool_threads,
            self.deletion,
            self.cleanup,
            self.maintenance_worker,
            has_tenant_limits=lambda: bool(self._tenant_limits()),
            counted=self._something_changed,
        )

    def _make_parts(self) -> None:
        """The table of threads beside those of the pools."""
        zk, cache, providers, events = self.zk, self.cache, self.providers, self.events

        def cleanup() -> CleanupWorker:
            in_progress = self.pool_threads.requests_in_progress
            return CleanupWorker(zk, cache, providers, self.pools, self._config, in_progress)

        self.deletion = Part("DeletedNodeWorker", lambda: DeletedNodeWorker(zk, cache, providers, events))
        self.cleanup = Part("CleanupWorker", cleanup)
        held = self.maintenance.holds
        self.min_ready = Part("MinReadyWorker", lambda: MinReadyWorker(zk, cache, providers, self._config, held))
        self.maintenance_worker = Part("MaintenanceWorker", self._make_maintenance_worker)
        report = self._make_report()
        self.status = Part(
            "StatusWorker", lambda: StatusWorker(self.pool_threads.all, report, self._status_writer, events.put)
        )
        events.on_event = lambda: self.status.current.changed()
        watch = Part("CallWatch", lambda: CallWatch(REGISTRY))
        table: list[Part[Any]] = [watch, self.status, self.deletion, self.cleanup, self.min_ready]
        table.append(self.maintenance_worker)
        table += [make(self, self._config()) for make in self._more_parts]
        client = shared_client()
        if client is not None:
            self.stats = Part("StatsWorker", lambda: make_stats_worker(client, zk, cache, providers, self._config))
            table.insert(0, self.stats)
        self.parts = Parts(table, self.log)

    def _make_maintenance_worker(self) -> MaintenanceWorker:
        return MaintenanceWorker(
            self.client,
            self.cache.maintenance,
            self.maintenance,
            self.pool_threads.all,
            changed=lambda: self._router.hold_changed(),
            drained=self._drained,
        )

    def _make_report(self) -> SelfReport:
        return SelfReport(
            version=release_string(),
            config_file=self._config_path,
            servers=self.client.hosts,
            digest=self._digest,
            pools=lambda: [f"{pool.provider_name}/{pool.pool_name}" for pool in self.pool_threads.current()],
            absent=lambda: self.providers.absent,
            reload=lambda: self.reload_events.last,
            tenant_limits=self._tenant_limits,
            maintenance=lambda: self.maintenance.launcher,
            leads=lambda: self.stats is not None and self.stats.current.leading,
            events=self.events.last,
        )

    def begin(self) -> None:
        """Start everything. The connection is there; blocks for ZooKeeper and for the start of providers."""
        self._prepare_zookeeper(paths.NODES, paths.REQUESTS, paths.REQUEST_LOCKS)
        self.cache.wait_ready(30)
        self.maintenance.note_start()
        self.apply(self._config())
        self.look_again()
        host = socket.gethostname()
        self.events.add(host, f"launcher {host}", What.STARTED, f"version {release_string()}")
        self.parts.start()

    def run_once(self) -> None:
        """One turn of the main loop: follow the configuration, keep every thread alive."""
        self.configuration.follow()
        if not self.client.connected:
            return
        self._registration.keep()
        self.providers.retry_failed()
        self.pool_threads.update(self.providers.running)
        self.parts.revive()
        self.cache.nodes.refresh_stale()
        self._call_metrics.publish()

    def apply(self, config: Config) -> None:
        """Make providers and pools those of a configuration."""
        # Pools that go stop before their provider does.
        self.pool_threads.retire_others(config.providers)
        self.providers.apply(config.providers)
        self.pool_threads.update(self.providers.running)

    def look_again(self) -> None:
        """All that work with the configuration look at it again. Does not block."""
        self.pool_threads.look_again()
        self.deletion.current.node_changed("")
        self.min_ready.current.changed()

    def end(self) -> None:
        """Stop everything; blocks at most `STOP_SECONDS`."""
        deadline = monotonic() + STOP_SECONDS
        stop_all([*self.parts.threads(), *self.pool_threads.all()], THREADS_STOP_SECONDS, self.log)
        self.providers.stop(max(1.0, deadline - monotonic()))
        self._status_writer.close()
        self._registration.remove()
        self.client.disconnect()
        self.log.info("Stopped")

    def note(self, actor: str, subject: str, text: str) -> None:
        """An operator changed something by the web pages of this launcher. Any thread; does not block."""
        self.events.add(actor, subject, What.CHANGED, text)

    def drain(self, reason: str) -> bool:
        """Take nothing new, finish what is being served, and end then. Any thread; does not block.

        :return: False = the launcher does not serve yet, or not any more: there is nothing to finish.
        """
        if not self.ready.is_set() or self.loop.stopping.is_set():
            return False
        self.maintenance.drain(reason)
        self._router.maintenance_changed()
        return True

    # -- what parts are told --

    def _drained(self) -> None:
        self.finished = True
        self.loop.stop()

    def _digest(self) -> str:
        return self.configuration.current.digest

    def _tenant_limits(self) -> Mapping[str, dict[str, float]]:
        return self.configuration.current.tenant_resource_limits

    def _something_changed(self, request_id: str) -> None:
        """For threads that count: nodes, requests or pools changed. Does not block."""
        self.min_ready.current.changed(request_id)
        if self.stats is not None:
            self.stats.current.changed()
