# SPDX-License-Identifier: Apache-2.0
"""`PoolParts`: makes the parts of a pool worker, and gives each what it uses."""

from __future__ import annotations

import socket
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from nodepool.driver import gateway
from nodepool.launcher.pool.batch import Batch
from nodepool.launcher.pool.changes import Changes
from nodepool.launcher.pool.decline import Declines
from nodepool.launcher.pool.desk import Desk
from nodepool.launcher.pool.entry import PoolEntry
from nodepool.launcher.pool.eviction import Eviction
from nodepool.launcher.pool.fulfil import FastPath
from nodepool.launcher.pool.handlers import Handlers
from nodepool.launcher.pool.intake import Intake
from nodepool.launcher.pool.launch_log import LaunchLog
from nodepool.launcher.pool.nodes import FreeNodes
from nodepool.launcher.pool.request_events import RequestEvents
from nodepool.launcher.pool.room import Room
from nodepool.launcher.pool.services import PoolServices
from nodepool.launcher.pool.status_maker import PoolStatusMaker, StatusSources
from nodepool.launcher.pool.turns import Turns
from nodepool.launcher.pool.view import PoolView
from nodepool.launcher.pool.waiting_lines import WaitingLines
from nodepool.plan.queue import RequestQueue

if TYPE_CHECKING:
    import logging

    from nodepool.launcher.pool.context import PoolContext
    from nodepool.launcher.pool.pass_context import PassContext
    from nodepool.plan.queue import RequestKind


class Changed(Protocol):
    """Told the id of what changed; '' = any may have. ``wake`` = False: it can wait until the next pass."""

    def __call__(self, changed_id: str, /, *, wake: bool = True) -> None: ...


class PoolParts:
    """Owned by the pool worker's thread.

    :param launcher: what the pool uses of its launcher.
    :param pool: what the parts know of the pool.
    :param wake: makes the worker begin a pass soon.
    """

    def __init__(
        self,
        launcher: PoolContext,
        pool: PassContext,
        wake: Callable[[], None],
        request_changed: Changed,
        node_changed: Changed,
        log: logging.Logger,
    ) -> None:
        place = (pool.provider_name, pool.pool_name)
        nodes = launcher.cache.nodes
        self.queue = queue = RequestQueue()
        self.desk = desk = Desk(queue)
        self.entry = PoolEntry(pool, launcher.zk.client, launcher.version)
        self.free_nodes = free = FreeNodes(nodes, *place, node_changed)
        eviction = Eviction(place, free, launcher.zk, nodes.is_locked, log)
        room = Room(pool, desk, log)
        launch_log = LaunchLog()
        services = PoolServices(pool, free, eviction, room, launch_log, wake)
        self.view = PoolView(
            *(pool, free.ready, room, Turns(launcher.free_counts)),
            make_handler=lambda request: gateway.get_request_handler(pool.provider, services, request),
        )
        events = RequestEvents(launcher.events, socket.gethostname(), pool.place, pool.declines_of_others)
        slowness = 1.0 + zlib.crc32(pool.launcher_id.encode()) % 256 / 512
        self.handlers = handlers = Handlers(desk, pool.launcher_id, slowness, request_changed, events, log)
        self.fast_path = FastPath(pool, desk, free, wake, request_changed, log)
        declines = Declines(pool, desk, queue, events, log)
        batch = Batch(self.view, desk, handlers, request_changed, declines.fail_too_large)
        self.intake = Intake(*(self.view, queue, desk, self.fast_path, declines, batch), eviction, wake, log)
        self.waiting_lines = WaitingLines(pool, desk, queue, log)
        self.changes = Changes(pool, queue, desk, free, eviction)
        sources = _status_sources(launcher, place, queue, desk, launch_log, handlers)
        self.status = PoolStatusMaker(pool, sources, socket.gethostname(), launcher.version, launcher.config_digest)


def _status_sources(
    launcher: PoolContext,
    place: tuple[str, str],
    queue: RequestQueue,
    desk: Desk,
    launch_log: LaunchLog,
    handlers: Handlers,
) -> StatusSources:
    def oldest(kind: RequestKind) -> float | None:
        request = launcher.cache.requests.get(queue.oldest(kind) or "")
        return None if request is None else request.created_time

    return StatusSources(
        desk,
        launches=lambda: launch_log.status(handlers.launches()),
        launching=handlers.launching,
        usual=launch_log.usual,
        oldest=oldest,
        ready=lambda: launcher.free_counts.of_pool(*place),
        tenant_use=launcher.known_tenant_use,
    )
