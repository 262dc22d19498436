# SPDX-License-Identifier: Apache-2.0
"""Gauges of what a `WebSnapshot` shows, as pure functions: series -> number (reference/metrics 9)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from nodepool.metrics import prometheus as catalog
from nodepool.metrics import reports
from nodepool.model import states
from nodepool.plan.explain import causes
from nodepool.plan.ownerless import ownerless
from nodepool.plan.pool_summary import PoolSummary, summarize

if TYPE_CHECKING:
    from nodepool.metrics.reports import Gauges
    from nodepool.model.image import ImagesView
    from nodepool.model.status import HostStatus, LauncherStatus, LimitStatus
    from nodepool.plan.observed import Observed
    from nodepool.web.snapshot import WebSnapshot

_TENANT: Final = "tenant:"
#: Scopes of limits that all pools of a provider share.
_OF_PROVIDER: Final = ("provider", "cloud")


def computed_gauges(snapshot: WebSnapshot) -> Gauges:
    """All gauges of a snapshot. Does not block."""
    seen = snapshot.observed
    pools = summarize(seen.statuses)
    return {
        **reports.node_gauges(seen.nodes.values(), seen.registered),
        **reports.request_gauges(seen.requests.values(), seen.registered),
        **_configured_limits(pools, snapshot.launchers),
        **waiting_gauges(seen),
        **limit_gauges(pools),
        **_pool_gauges(seen, pools),
        **_host_gauges(pools),
        **_launcher_gauges(snapshot.launchers),
        **{
            catalog.MAINTENANCE.series(one.kind, one.name, one.mode.value): 1
            for one in seen.maintenance
            if not one.is_over(seen.now)
        },
        **{catalog.OWNERLESS.series(one.kind, one.name): one.count for one in ownerless(seen)},
        **image_gauges(snapshot.images),
    }


def waiting_gauges(seen: Observed) -> Gauges:
    """Requests by state; of those that wait, for what."""
    by_state = Counter(str(request.state) for request in seen.requests.values())
    found: Gauges = {catalog.REQUESTS.series(state): by_state[state] for state in states.REQUEST_STATES}
    waiting = [request for request in seen.waiting if request.state == states.REQUESTED]
    why = causes(waiting, seen)
    for label in sorted(seen.labels):
        # A series that comes and goes cannot be averaged.
        found[catalog.OLDEST.series(label)] = 0.0
    for request in seen.waiting:
        age = max(0.0, seen.now - (request.created_time or seen.now))
        for label in sorted(set(request.node_types)):
            oldest = catalog.OLDEST.series(label)
            found[oldest] = max(found.get(oldest, 0.0), age)
            if request.state == states.REQUESTED:
                series = catalog.WAITING.series(label, why[request.key].code)
                found[series] = found.get(series, 0) + 1
    return found


def limit_gauges(pools: Iterable[PoolSummary]) -> Gauges:
    """Limits, and what is used of them; what several pools share is there once, as it was told last."""
    newest: dict[tuple[str, ...], LimitStatus] = {}
    for pool in pools:
        for limit in pool.limits:
            key = _limit_labels(pool, limit)
            if key not in newest or (limit.asked_at or 0.0) > (newest[key].asked_at or 0.0):
                newest[key] = limit
    found: Gauges = {}
    for key, limit in newest.items():
        if limit.limit is not None:
            found[catalog.LIMIT.series(*key)] = limit.limit
        found[catalog.LIMIT_USED.series(*key)] = limit.used
        found[catalog.LIMIT_OTHERS.series(*key)] = limit.others
    return found


def _limit_labels(pool: PoolSummary, limit: LimitStatus) -> tuple[str, ...]:
    """Scope, provider, pool, tenant and resource; '' = it is not of one."""
    if limit.scope.startswith(_TENANT):
        return "tenant", "", "", limit.scope.removeprefix(_TENANT), limit.resource
    of_pool = "" if limit.scope in _OF_PROVIDER else pool.pool
    return limit.scope, pool.provider, of_pool, "", limit.resource


def _configured_limits(pools: Iterable[PoolSummary], launchers: Iterable[LauncherStatus]) -> Gauges:
    """With the names that statsd has, of all launchers together."""
    max_servers: dict[str, list[float]] = {}
    for pool in pools:
        instances = next((one for one in pool.limits if (one.scope, one.resource) == ("pool", "instances")), None)
        limit = None if instances is None else instances.limit
        max_servers.setdefault(pool.provider, []).append(math.inf if limit is None else limit)
    tenants: dict[str, Mapping[str, float]] = {}
    for launcher in launchers:
        tenants.update(launcher.tenant_limits)
    return reports.limit_gauges(max_servers, tenants)


def _pool_gauges(seen: Observed, pools: Iterable[PoolSummary]) -> Gauges:
    found: Gauges = {}
    for status in seen.statuses:
        series = catalog.POOL_STATE.series(status.provider, status.pool, status.state, status.code or "")
        found[series] = found.get(series, 0) + 1
    for pool in pools:
        found[catalog.POOL_LAUNCHES.series(pool.provider, pool.pool)] = pool.launches.running
        found[catalog.POOL_SLOW.series(pool.provider, pool.pool)] = sum(launch.slow for launch in pool.launching)
        for name, label in pool.labels.items():
            found[catalog.LABEL_BROKEN.series(pool.provider, pool.pool, name, label.code)] = 1
    return found


def _host_gauges(pools: Iterable[PoolSummary]) -> Gauges:
    found: Gauges = {}
    for pool in pools:
        for host in pool.hosts:
            place = pool.provider, host.pool or pool.pool
            series = catalog.HOSTS.series(*place, _host_state(host))
            found[series] = found.get(series, 0) + 1
            if host.up is not None:
                found[catalog.HOST_UP.series(*place, host.name)] = int(host.up)
    return found


def _host_state(host: HostStatus) -> str:
    if host.quarantine is not None:
        return "quarantined"
    return "unknown" if host.up is None else "up" if host.up else "down"


def _launcher_gauges(launchers: Sequence[LauncherStatus]) -> Gauges:
    found: Gauges = {}
    for launcher in launchers:
        name = launcher.host
        found[catalog.LAUNCHER_INFO.series(name, launcher.version, launcher.config, launcher.state)] = 1
        found[catalog.LAUNCHER_START.series(name)] = launcher.since
        found.update({catalog.ABSENT.series(name, absent.name): 1 for absent in launcher.absent})
        if launcher.reload is not None:
            found[catalog.RELOAD_OK.series(name)] = int(launcher.reload.ok)
            found[catalog.RELOAD_TIME.series(name)] = launcher.reload.at
    return found


def image_gauges(images: ImagesView) -> Gauges:
    """Builds and uploads by state, and how new the newest are."""
    found: Gauges = {}
    for name, image in images.images.items():
        by_state = Counter(build.state for build in image.builds.values())
        found.update({catalog.BUILDS.series(name, state): by_state[state] for state in states.BUILD_STATES})
        ready = image.ready_builds()
        if ready:
            found[catalog.BUILD_TIME.series(name)] = ready[0].time
        all_uploads = (upload for build in image.builds.values() for upload in build.all_uploads())
        uploads = Counter((upload.provider_name, str(upload.state)) for upload in all_uploads)
        for provider in sorted({provider for provider, _ in uploads}):
            for state in states.UPLOAD_STATES:
                found[catalog.UPLOADS.series(name, provider, state)] = uploads[provider, state]
            current = image.current_upload(provider)
            if current is not None:
                found[catalog.UPLOAD_TIME.series(name, provider)] = current.state_time or 0.0
    return found
