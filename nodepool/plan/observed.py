# SPDX-License-Identifier: Apache-2.0
"""`Observed`: what ZooKeeper says at one moment, which `nodepool.plan.explain` reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property

from nodepool.model.component import PoolComponent
from nodepool.model.event import Event
from nodepool.model.launcher_status import AbsentProvider, LauncherStatus
from nodepool.model.maintenance import Maintenance
from nodepool.model.node import Node
from nodepool.model.pool_status import PoolStatus
from nodepool.model.request import NodeRequest
from nodepool.plan.assignment import PoolInfo
from nodepool.plan.node_index import NodeIndex
from nodepool.quick_dataclass import dataclass

#: Part of the id of each pool, in front of provider and pool.
_POOL_MARK = "-PoolWorker."
#: What `Observed` finds out when it is asked, and what is the same at every time.
_TIMELESS = ("pools", "labels", "providers", "absent_providers", "node_index", "_provider_of")


@dataclass(frozen=True)
class PoolFacts:
    """A pool of one launcher.

    :param component: its entry in the registry; None = it is not registered.
    :param status: what it reports; None = its launcher reports none.
    """

    id: str
    component: PoolComponent | None
    status: PoolStatus | None

    @cached_property
    def name(self) -> str:
        """``<provider>/<pool>``; of one that nobody knows any more, what its id has of it."""
        if self.component is not None:
            return f"{self.component.provider_name}/{self.component.name}"
        if self.status is not None:
            return f"{self.status.provider}/{self.status.pool}"
        return self._of_id

    @cached_property
    def _of_id(self) -> str:
        return self.id.partition(_POOL_MARK)[2].rpartition("-")[0] or self.id

    @cached_property
    def provider(self) -> str:
        # Not cut from the name: a provider may have a slash in its own.
        if self.component is not None:
            return self.component.provider_name
        return self._of_id.partition("/")[0] if self.status is None else self.status.provider

    @cached_property
    def host(self) -> str:
        """Of its launcher."""
        if self.status is not None and self.status.host:
            return self.status.host
        if self.component is not None and self.component.hostname:
            return self.component.hostname
        return self.id.partition(_POOL_MARK)[0]

    @cached_property
    def version(self) -> str:
        return (self.status.version if self.status is not None else None) or (
            (self.component.version if self.component is not None else None) or "of an unknown release"
        )

    @cached_property
    def labels(self) -> frozenset[str]:
        return frozenset(() if self.component is None else self.component.supported_labels)

    @cached_property
    def info(self) -> PoolInfo:
        """As other pools see it."""
        priority = 0 if self.component is None else self.component.priority
        paused = self.component is not None and self.component.paused
        return PoolInfo(self.id, self.provider, self.labels, priority, paused, self.name[len(self.provider) + 1 :])


@dataclass(frozen=True)
class Observed:
    """All of it. Nothing here is changed.

    :param now: seconds since the epoch.
    :param requests: by id. ``nodes``: by id; all of them, or those that have to do with the subject.
    :param registered: entries of pools in the component registry.
    :param statuses: what pools report.
    :param events: of all launchers.
    :param launchers: what launchers report about themselves.
    :param locked: ids of nodes that somebody holds the lock of, of those that have to do with the subject.
    """

    now: float
    requests: Mapping[str, NodeRequest] = field(default_factory=dict)
    nodes: Mapping[str, Node] = field(default_factory=dict)
    registered: Sequence[PoolComponent] = ()
    statuses: Sequence[PoolStatus] = ()
    maintenance: Sequence[Maintenance] = ()
    events: Sequence[Event] = ()
    launchers: Sequence[LauncherStatus] = ()
    locked: frozenset[str] = frozenset()

    @cached_property
    def pools(self) -> Mapping[str, PoolFacts]:
        """By id, in the order of their names. A status without an entry in the registry counts, too."""
        components = {component.id: component for component in self.registered}
        statuses = {status.id: status for status in self.statuses}
        ids = components.keys() | statuses.keys()
        facts = [PoolFacts(pool_id, components.get(pool_id), statuses.get(pool_id)) for pool_id in ids]
        return {pool.id: pool for pool in sorted(facts, key=lambda pool: (pool.name, pool.host, pool.id))}

    @cached_property
    def _provider_of(self) -> Mapping[str, str]:
        return {pool.name: pool.provider for pool in self.pools.values()}

    def provider_of(self, pool: str) -> str:
        """The provider of a pool.

        :param pool: ``<provider>/<pool>``; of one that nobody knows, what is before the first slash. A provider itself.
        """
        return pool if pool in self.providers else self._provider_of.get(pool, pool.partition("/")[0])

    @cached_property
    def labels(self) -> frozenset[str]:
        """Of all registered pools."""
        return frozenset(label for pool in self.pools.values() for label in pool.labels)

    @cached_property
    def providers(self) -> frozenset[str]:
        """Of all pools."""
        return frozenset(pool.provider for pool in self.pools.values())

    @cached_property
    def absent_providers(self) -> Mapping[str, Sequence[tuple[str, AbsentProvider]]]:
        """Configured providers that launchers do not serve, by name: hosts of the launchers, and why."""
        found: dict[str, list[tuple[str, AbsentProvider]]] = {}
        for launcher in self.launchers:
            for provider in launcher.absent:
                found.setdefault(provider.name, []).append((launcher.host, provider))
        return found

    @cached_property
    def node_index(self) -> NodeIndex:
        """Of all nodes."""
        return NodeIndex.of(self.nodes.values())

    def at(self, now: float) -> Observed:
        """The same at another time. What was found out already is not looked for again.

        :param now: seconds since the epoch.
        """
        later = replace(self, now=now)
        vars(later).update({name: vars(self)[name] for name in _TIMELESS if name in vars(self)})
        return later

    def with_node_index(self, index: NodeIndex) -> Observed:
        """The same, whose `node_index` is known already.

        :param index: of its nodes.
        """
        told = replace(self)
        vars(told)["node_index"] = index
        return told

    def maintenance_of(self, subjects: Iterable[tuple[str, str]]) -> list[Maintenance]:
        """The records that hold now.

        :param subjects: (kind, name).
        """
        wanted = set(subjects)
        return [one for one in self.maintenance if (one.kind, one.name) in wanted and not one.is_over(self.now)]
