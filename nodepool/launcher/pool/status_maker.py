# SPDX-License-Identifier: Apache-2.0
"""`PoolStatusMaker`: what a pool tells of itself to commands and pages (rules P)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from nodepool.driver import gateway
from nodepool.launcher.pool.status_size import bounded
from nodepool.model.pool_status import LaunchesStatus, LimitStatus, PoolStatus, RequestStatus, WaitingStatus
from nodepool.model.reasons import ReasonCode
from nodepool.plan.request_stage import Stage

if TYPE_CHECKING:
    from nodepool.driver.interface import Provider
    from nodepool.launcher.pool.desk import Desk, Snapshot
    from nodepool.launcher.pool.explanations import Explanation
    from nodepool.launcher.pool.pass_context import PassContext
    from nodepool.model.quota import QuotaInformation
    from nodepool.plan.queue import RequestKind

#: Declined requests that are told: the last ones.
MAX_DECLINED: Final = 100


@dataclass(frozen=True)
class StatusSources:
    """What a status is made of. Any thread may call all of it; nothing blocks, and nothing asks ZooKeeper or a cloud.

    :param own_launches: launches in progress in the pool.
    :param oldest: when the oldest waiting request of a kind was submitted, seconds since the epoch; None = not known.
    :param ready: label -> ready nodes of the pool that nobody has.
    :param tenant_use: what all nodes of a tenant use, as far as it is known.
    """

    desk: Desk
    own_launches: Callable[[], int]
    oldest: Callable[[RequestKind], float | None]
    ready: Callable[[], Mapping[str, int]]
    tenant_use: Callable[[str], QuotaInformation]


class PoolStatusMaker:
    """For one thread, that of the status worker.

    :param host: of the launcher. ``version``: of this release.
    """

    def __init__(self, pool: PassContext, sources: StatusSources, host: str, version: str) -> None:
        self._pool = pool
        self._sources = sources
        self._before = PoolStatus(
            id=pool.launcher_id, host=host, version=version, provider=pool.provider_name, pool=pool.pool_name
        )

    def make(self, now: float) -> PoolStatus:
        """The status of now. Equal to the one before if nothing changed, however much later it is made.

        :param now: seconds since the epoch.
        """
        pool = self._pool
        made = self._before if not pool.has_provider else self._look(pool.provider)
        known = (made.state, made.code) == (self._before.state, self._before.code)
        since = self._before.since if known and self._before.since else now
        made = bounded(replace(made, since=since))
        self._before = made
        return made

    def _look(self, provider: Provider) -> PoolStatus:
        pool, sources = self._pool, self._sources
        snapshot = sources.desk.snapshot()
        state, code, text = _state(provider, snapshot)
        return replace(
            self._before,
            driver=getattr(pool.config.driver, "name", "") or "",
            launches_nodes=bool(provider.LAUNCHES),
            state=state,
            code=code,
            text=text,
            limits=self._limits(provider, snapshot),
            labels=dict(gateway.label_errors(provider)),
            ready={label: count for label, count in sorted(sources.ready().items()) if count},
            waiting=self._waiting(snapshot),
            requests=[_request(told) for told in sorted(snapshot.requests, key=lambda told: told.since)],
            declined=[_request(told) for told in snapshot.declined[-MAX_DECLINED:]],
            launches=LaunchesStatus(running=sources.own_launches()),
            hosts=list(gateway.host_status(provider)),
            omitted=0,
        )

    def _limits(self, provider: Provider, snapshot: Snapshot) -> Sequence[LimitStatus]:
        found = list(gateway.limit_status(provider, self._pool.pool_name))
        limit = self._pool.max_concurrency
        if limit >= 0:
            found.append(LimitStatus("provider", "launches", limit, self._pool.launches_running()))
        configured = self._pool.tenant_limits()
        # Of others nobody here waits for anything.
        waiting = {kind.tenant_name or "" for kind, _, _ in snapshot.kinds}
        for tenant in sorted(waiting & configured.keys()):
            used = self._sources.tenant_use(tenant)
            for resource, amount in sorted(configured[tenant].items()):
                found.append(LimitStatus(f"tenant:{tenant}", resource, amount, used.quota["compute"].get(resource, 0)))
        return found

    def _waiting(self, snapshot: Snapshot) -> Sequence[WaitingStatus]:
        found = []
        for kind, count, waiting in snapshot.kinds:
            reason = waiting.reason
            found.append(
                WaitingStatus(
                    kind.labels,
                    kind.provider,
                    kind.tenant_name,
                    count,
                    self._sources.oldest(kind),
                    reason.code.value,
                    reason.text,
                    dict(reason.numbers),
                    waiting.since,
                )
            )
        return found


def _state(provider: Provider, snapshot: Snapshot) -> tuple[str, str | None, str | None]:
    """State, code and text."""
    unavailable = gateway.paused_reason(provider)
    if unavailable is not None:
        return "unavailable", ReasonCode.PROVIDER_CIRCUIT_OPEN.value, unavailable
    paused = next((told for told in snapshot.requests if told.stage is Stage.PAUSED), None)
    if paused is not None:
        return "paused", paused.reason.code.value, paused.reason.text
    return "running", None, None


def _request(told: Explanation) -> RequestStatus:
    reason = told.reason
    return RequestStatus(
        told.request_id, told.stage.value, reason.code.value, reason.text, dict(reason.numbers), told.since
    )
