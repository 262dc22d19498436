# SPDX-License-Identifier: Apache-2.0
"""Which requests wait too long, and for what: the first line of ``nodepool status``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from nodepool.model import states
from nodepool.model.pool_status import PoolStatus, RequestStatus, WaitingStatus

if TYPE_CHECKING:
    from nodepool.model.request import NodeRequest

#: A request that waits so long needs an explanation.
LONG_SECONDS: Final = 300.0
#: Beginnings of codes, what a request really waits for first.
_ORDER: Final = ("maintenance", "room", "provider", "launch", "label", "image", "served", "wait", "request", "turn")
#: Resources that a code is about.
_RESOURCES: Final = {"room.instances": "instances", "room.cores": "cores", "room.ram": "ram"}


@dataclass(frozen=True)
class WaitCause:
    """Why a request waits.

    :param pool: ``<provider>/<pool>``; empty = no pool tells.
    """

    pool: str = ""
    code: str = ""
    text: str = ""


@dataclass(frozen=True)
class LongWait:
    """Requests that have waited long, for the same labels and the same cause.

    :param oldest: when the first of them was submitted, in seconds since the epoch.
    :param ids: of the requests, the oldest first.
    """

    labels: Sequence[str]
    cause: WaitCause
    count: int
    oldest: float
    ids: Sequence[str]


def long_waits(
    requests: Iterable[NodeRequest], pools: Sequence[PoolStatus], now: float, seconds: float = LONG_SECONDS
) -> list[LongWait]:
    """Requests that nobody has answered for long, the largest group first.

    :param pools: the records of all launchers.
    :param now: seconds since the epoch.
    """
    causes = _WaitCauses(pools)
    groups: dict[tuple[tuple[str, ...], WaitCause], list[NodeRequest]] = {}
    for request in requests:
        if request.state not in (states.REQUESTED, states.PENDING) or request.created_time is None:
            continue
        if now - request.created_time > seconds:
            labels = tuple(sorted(request.node_types))
            groups.setdefault((labels, causes.of(request, labels)), []).append(request)
    found = []
    for (labels, cause), members in groups.items():
        members.sort(key=lambda request: request.created_time or 0.0)
        oldest = members[0].created_time or 0.0
        found.append(LongWait(labels, cause, len(members), oldest, [request.id or "" for request in members]))
    return sorted(found, key=lambda wait: (-wait.count, wait.oldest))


class _WaitCauses:
    """Finds out why a request waits."""

    def __init__(self, pools: Sequence[PoolStatus]) -> None:
        self._by_request: dict[str, list[WaitCause]] = {}
        self._by_kind: dict[tuple[tuple[str, ...], str | None], list[tuple[str | None, WaitCause]]] = {}
        for pool in pools:
            name = f"{pool.provider}/{pool.pool}"
            for request in pool.requests:
                self._by_request.setdefault(request.id, []).append(WaitCause(name, request.code, _brief(request)))
            for kind in pool.waiting:
                key = (tuple(sorted(kind.labels)), kind.provider)
                self._by_kind.setdefault(key, []).append((kind.tenant, WaitCause(name, kind.code, _brief(kind))))

    def of(self, request: NodeRequest, labels: tuple[str, ...]) -> WaitCause:
        found = list(self._by_request.get(request.id or "", ()))
        kinds = self._by_kind.get((labels, request.provider), ())
        found += [cause for tenant, cause in kinds if tenant in (None, request.tenant_name)]
        if request.state == states.PENDING:
            # The pool that has its lock knows best.
            found = list(self._by_request.get(request.id or "", ())) or found
        return min(
            found, key=lambda cause: (_rank(cause.code), cause.pool), default=WaitCause(text="no pool tells why")
        )


def _rank(code: str) -> int:
    kind = code.partition(".")[0]
    return _ORDER.index(kind) if kind in _ORDER else len(_ORDER)


def _brief(status: RequestStatus | WaitingStatus) -> str:
    """The cause in a few words."""
    numbers, resource = status.numbers, _RESOURCES.get(status.code)
    if resource and "limit" in numbers and "used" in numbers:
        more = numbers.get("needed", 1)
        needed = f", {more:g} needed" if more != 1 else ""
        return f"{resource} {numbers['used']:g} of {numbers['limit']:g}{needed}"
    return status.text
