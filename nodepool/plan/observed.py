# SPDX-License-Identifier: Apache-2.0
"""What ZooKeeper says at one moment (`Observed`), which `nodepool.plan.explain` reads.

Then what many ask of all nodes, found in one pass (`NodeIndex`), and followed from moment to moment.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import compress
from operator import is_not
from typing import Final, NamedTuple

from nodepool.model import states
from nodepool.model.event import Event, grouped
from nodepool.model.image import NO_IMAGES, ImagesView
from nodepool.model.node import Node
from nodepool.model.request import NodeRequest
from nodepool.model.status import (
    POOL_MARK,
    AbsentProvider,
    LauncherStatus,
    LaunchStatus,
    Maintenance,
    PoolComponent,
    PoolStatus,
)
from nodepool.plan.triage import MIN_READY_REQUESTOR, PoolInfo

#: Nodes of a fulfilled request that were not fetched for so long are not fetched any more, in seconds.
UNFETCHED_SECONDS: Final = 300.0


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
        return self.id.partition(POOL_MARK)[2].rpartition("-")[0] or self.id

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
        return self.id.partition(POOL_MARK)[0]

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
    :param images: with their builds and uploads. ``builders``: hosts of registered builders; None = not known.
    :param builder_providers: host of a builder -> providers whose uploads it looks after, of those that report it.
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
    images: ImagesView = NO_IMAGES
    builders: frozenset[str] | None = None
    builder_providers: Mapping[str, frozenset[str]] = field(default_factory=dict)

    @cached_property
    def pools(self) -> Mapping[str, PoolFacts]:
        """By id, in the order of their names. A status without an entry in the registry counts, too."""
        components = {component.id: component for component in self.registered}
        statuses = {status.id: status for status in self.statuses}
        ids = components.keys() | statuses.keys()
        facts = [PoolFacts(pool_id, components.get(pool_id), statuses.get(pool_id)) for pool_id in ids]
        return {pool.id: pool for pool in sorted(facts, key=lambda pool: (pool.name, pool.host, pool.id))}

    @cached_property
    def launches(self) -> Mapping[str, LaunchStatus]:
        """Launches that have been in their step for a while, by node."""
        return {launch.node: launch for status in self.statuses for launch in status.launching}

    @cached_property
    def missing(self) -> frozenset[str]:
        """Nodes that may be lost, or in another place (D-9)."""
        return frozenset(node_id for status in self.statuses for node_id in status.missing)

    @cached_property
    def unfetched(self) -> Sequence[NodeRequest]:
        """Requests whose nodes are ready, and whose requestor has not come for them for long; the oldest first.

        A requestor takes the nodes and deletes the request at once.
        """
        found = [
            request
            for request in self.requests.values()
            if request.state == states.FULFILLED
            and request.state_time is not None
            and self.now - request.state_time > UNFETCHED_SECONDS
            and any(self._is_kept_for(request, node_id) for node_id in request.nodes)
        ]
        return sorted(found, key=lambda request: request.state_time or 0.0)

    def _is_kept_for(self, request: NodeRequest, node_id: str) -> bool:
        node = self.nodes.get(node_id)
        return node is not None and node.state == states.READY and node.allocated_to == request.key

    @cached_property
    def waiting(self) -> Sequence[NodeRequest]:
        """Open requests, without those that keep ``min-ready`` nodes: no job waits for these."""
        return [
            request
            for request in self.requests.values()
            if request.state in (states.REQUESTED, states.PENDING) and request.requestor != MIN_READY_REQUESTOR
        ]

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
    def pool_names(self) -> frozenset[str]:
        """``<provider>/<pool>`` of all pools."""
        return frozenset(pool.name for pool in self.pools.values())

    @cached_property
    def absent_providers(self) -> Mapping[str, Sequence[tuple[str, AbsentProvider]]]:
        """Configured providers that launchers do not serve, by name: hosts of the launchers, and why."""
        absent = ((launcher.host, provider) for launcher in self.launchers for provider in launcher.absent)
        return grouped(absent, lambda entry: entry[1].name)

    @cached_property
    def node_index(self) -> NodeIndex:
        """Of all nodes."""
        return NodeIndex.of(self.nodes.values())

    def allocated_to(self, request: NodeRequest) -> Mapping[str, Node]:
        """The nodes of a request, by id."""
        return self.node_index.allocated.get(request.key, {})

    def at(self, now: float) -> Observed:
        """The same at another time. What was found out already is not looked for again.

        :param now: seconds since the epoch.
        """
        found = {name: value for name, value in vars(self).items() if name not in ("now", "unfetched")}
        later = replace(self, now=now)
        vars(later).update(found)
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


# `NodeIndex`: what several tables and sentences ask of all nodes, found in one pass over them.

#: States whose nodes are looked at one by one.
SINGLED_OUT: Final = (states.DELETING, states.HOLD)


class NodeIndex(NamedTuple):
    """Shared by all readers, and never changed.

    :param counts: (provider, pool, state) -> number of nodes.
    :param deleting: nodes in this state. ``held``: nodes on hold.
    :param allocated: id of a request -> the nodes that are allocated to it, by id.
    """

    counts: Mapping[tuple[str | None, str | None, str], int]
    deleting: Sequence[Node]
    held: Sequence[Node]
    allocated: Mapping[str, Mapping[str, Node]]

    @classmethod
    def of(cls, nodes: Iterable[Node]) -> NodeIndex:
        """Of nodes that do not change meanwhile: looks at each of them. See `nodepool.plan.observed`."""
        counts: Counter[tuple[str | None, str | None, str]] = Counter()
        singled_out: dict[str, list[Node]] = {state: [] for state in SINGLED_OUT}
        allocated: dict[str, dict[str, Node]] = {}
        for node in nodes:
            state = node.state
            counts[node.provider, node.pool, state] += 1
            if state in SINGLED_OUT:
                singled_out[state].append(node)
            if node.allocated_to:
                allocated.setdefault(node.allocated_to, {})[node.key] = node
        return cls(counts, singled_out[states.DELETING], singled_out[states.HOLD], allocated)

    def allocated_to(self, requests: Iterable[str]) -> dict[str, Node]:
        """The nodes of some requests, by id.

        :param requests: ids.
        """
        return {key: node for request in requests for key, node in self.allocated.get(request, {}).items()}


# `FollowedNodes`: nodes by id and their `NodeIndex`, moment by moment, with work for what has changed only.

_NOTHING: Final[Mapping[str, Node]] = {}


class _Facts(NamedTuple):
    """What was counted of a node. Its record may be changed in place, and what was counted must be taken off again."""

    provider: str | None
    pool: str | None
    state: str
    request: str | None


class FollowedNodes:
    """For one thread at a time. What it gave is not changed later."""

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}
        self._facts: dict[str, _Facts] = {}
        self._counts: Counter[tuple[str | None, str | None, str]] = Counter()
        #: State -> nodes by id.
        self._singled_out: dict[str, dict[str, Node]] = {state: {} for state in SINGLED_OUT}
        #: Id of a request -> its nodes by id. An inner mapping is replaced, never changed.
        self._allocated: dict[str, Mapping[str, Node]] = {}

    def follow(self, nodes: Mapping[str, Node], noted: Collection[str]) -> tuple[Mapping[str, Node], NodeIndex]:
        """All nodes as they are now, sorted by id, and what is asked of all of them.

        A look at 10,000 nodes of which a few have changed takes about a millisecond. Does not block.

        :param nodes: all of them, by id; it is not kept.
        :param noted: ids of nodes whose records may have been changed in place since the last call; a record that is
            another object than before is found without.
        """
        before = self._nodes
        changed = {*compress(nodes, map(is_not, nodes.values(), map(before.get, nodes)))}
        new = changed - before.keys()
        gone = before.keys() - nodes.keys() if len(before) + len(new) != len(nodes) else ()
        changed.update(node_id for node_id in noted if node_id in nodes)
        for node_id in gone:
            self._take_off(node_id)
        for node_id in changed:
            if node_id in self._facts:
                self._take_off(node_id)
            self._count(node_id, nodes[node_id])
        self._nodes = _sorted(before, nodes, changed, gone, in_order=_follow(before, new))
        return self._nodes, self._index()

    def _count(self, node_id: str, node: Node) -> None:
        facts = _Facts(node.provider, node.pool, node.state, node.allocated_to or None)
        self._facts[node_id] = facts
        self._counts[facts[:3]] += 1
        if facts.state in SINGLED_OUT:
            self._singled_out[facts.state][node_id] = node
        if facts.request is not None:
            self._allocated[facts.request] = {**self._allocated.get(facts.request, _NOTHING), node_id: node}

    def _take_off(self, node_id: str) -> None:
        facts = self._facts.pop(node_id)
        self._counts[facts[:3]] -= 1
        if not self._counts[facts[:3]]:
            del self._counts[facts[:3]]
        if facts.state in SINGLED_OUT:
            del self._singled_out[facts.state][node_id]
        if facts.request is not None:
            left = {other: node for other, node in self._allocated.pop(facts.request).items() if other != node_id}
            if left:
                self._allocated[facts.request] = left

    def _index(self) -> NodeIndex:
        deleting, held = ([nodes[node_id] for node_id in sorted(nodes)] for nodes in self._singled_out.values())
        return NodeIndex(self._counts.copy(), deleting, held, self._allocated.copy())


def _follow(before: dict[str, Node], new: Collection[str]) -> bool:
    """Do new ids stand behind all others? They do, because ZooKeeper counts them up, but for its first listing."""
    return not new or (bool(before) and min(new) > next(reversed(before)))


def _sorted(
    before: Mapping[str, Node],
    nodes: Mapping[str, Node],
    changed: Collection[str],
    gone: Collection[str],
    *,
    in_order: bool,
) -> dict[str, Node]:
    """``nodes`` by their ids, made of how they stood before."""
    if not in_order:
        return dict(sorted(nodes.items()))
    found = dict(before)
    for node_id in gone:
        del found[node_id]
    found.update((node_id, nodes[node_id]) for node_id in sorted(changed))
    return found
