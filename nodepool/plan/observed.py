# SPDX-License-Identifier: Apache-2.0
"""What ZooKeeper says at one moment (`Observed`), which `nodepool.plan.explain` reads.

Then what many ask of all nodes, found in one pass (`NodeIndex`). Then what no one looks after: records without an owner
(`Ownerless`). Last what a name stands for (`meant`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final, NamedTuple

from nodepool.model import states
from nodepool.model.config_keys import did_you_mean
from nodepool.model.event import Event, counted, grouped
from nodepool.model.image import NO_IMAGES, ImagesView
from nodepool.model.node import Node
from nodepool.model.request import PART_REQUESTOR, NodeRequest, parent_of
from nodepool.model.status import (
    POOL_MARK,
    AbsentProvider,
    LauncherStatus,
    LaunchStatus,
    Maintenance,
    PoolComponent,
    PoolStatus,
)
from nodepool.plan.shares import FairOrder, Policy, order_of
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
        """``<provider>/<pool>``; of one that no one knows any more, what its id has of it."""
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
        access, limits = None, {}
        if self.component is not None:
            access, limits = self.component.allowed_tenants, self.component.limits
        name = self.name[len(self.provider) + 1 :]
        return PoolInfo(self.id, self.provider, self.labels, priority, paused, name, access, limits=limits)


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
    :param cloud_images: image of a cloud -> labels that boot from it, as ``small of cloud-1/main``; empty = not known.
    :param lacking_files: host of a builder -> image -> file of its import that the host does not have.
    :param locked: ids of nodes that someone holds the lock of, of those that have to do with the subject.
    :param issued: ids that there have been, by kind (``node``, ``request``); empty = only what exists is known.
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
    cloud_images: Mapping[str, Sequence[str]] = field(default_factory=dict)
    lacking_files: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    issued: Mapping[str, int] = field(default_factory=dict)

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
    def consoles(self) -> Mapping[str, str]:
        """The end of the console of nodes that failed, by node."""
        return {node: text for status in self.statuses for node, text in status.consoles.items()}

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
            and parent_of(request) is None
            and request.state_time is not None
            and self.now - request.state_time > UNFETCHED_SECONDS
            and any(self._is_kept_for(request, node_id) for node_id in request.nodes)
        ]
        return sorted(found, key=lambda request: request.state_time or 0.0)

    def _is_kept_for(self, request: NodeRequest, node_id: str) -> bool:
        node = self.nodes.get(node_id)
        return node is not None and node.state == states.READY and node.allocated_to == request.key

    @cached_property
    def _open(self) -> Sequence[NodeRequest]:
        return [one for one in self.requests.values() if one.state in (states.REQUESTED, states.PENDING)]

    @cached_property
    def waiting(self) -> Sequence[NodeRequest]:
        """Open requests for jobs: neither those that keep ``min-ready`` nodes, nor parts of others."""
        return [request for request in self._open if request.requestor not in (MIN_READY_REQUESTOR, PART_REQUESTOR)]

    @property
    def spare(self) -> int:
        """Open requests that keep ``min-ready`` nodes."""
        return sum(request.requestor == MIN_READY_REQUESTOR for request in self._open)

    @cached_property
    def _provider_of(self) -> Mapping[str, str]:
        return {pool.name: pool.provider for pool in self.pools.values()}

    def provider_of(self, pool: str) -> str:
        """The provider of a pool.

        :param pool: ``<provider>/<pool>``; of one that no one knows, what is before the first slash. A provider itself.
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
    def mixed_labels(self) -> frozenset[str]:
        """Labels with ``mixed-nodesets``, as launchers report them."""
        return frozenset(label for launcher in self.launchers for label in launcher.mixed_labels)

    @cached_property
    def order(self) -> FairOrder | None:
        """The order of service where tenants have shares; None = they have none."""
        having = next((launcher for launcher in self.launchers if launcher.tenant_shares), None)
        if having is None:
            return None
        shares = {name: share for name, share in having.tenant_shares.items() if share.weight > 0}
        policy = Policy(shares, having.fair_projects)
        pools = [pool.info for pool in self.pools.values() if pool.component is not None]
        return order_of(policy, pools, self.nodes.values(), self.requests)

    @cached_property
    def node_index(self) -> NodeIndex:
        """Of all nodes."""
        return NodeIndex.of(self.nodes.values())

    def follow(self, before: Observed, changed: Collection[str]) -> None:
        """Make `node_index` of that of an earlier view: only the nodes with the ids ``changed`` may be others."""
        vars(self)["node_index"] = before.node_index.later(before.nodes, self.nodes, changed)

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

    def was_issued(self, kind: str, number: int) -> bool:
        """Has there been a node or request with this number?"""
        ids = self.nodes if kind == "node" else self.requests
        return number < max([self.issued.get(kind, 0), *(int(key[-10:]) + 1 for key in ids if key[-10:].isdecimal())])

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

    def later(self, before: Mapping[str, Node], after: Mapping[str, Node], changed: Collection[str]) -> NodeIndex:
        """Of ``after``, while this one is of ``before``: looks only at the nodes whose ids are in ``changed``."""
        old, new = (self.of(nodes[key] for key in changed if key in nodes) for nodes in (before, after))
        counts = Counter(self.counts)
        counts.subtract(old.counts)
        counts.update(new.counts)
        allocated = dict(self.allocated)
        for request in old.allocated.keys() | new.allocated.keys():
            same = {key: node for key, node in allocated.pop(request, {}).items() if key not in changed}
            if found := {**same, **new.allocated.get(request, {})}:
                allocated[request] = found

        def with_new(some: Sequence[Node], more: Sequence[Node]) -> list[Node]:
            return sorted([*(node for node in some if node.key not in changed), *more], key=lambda node: node.key)

        return NodeIndex(+counts, with_new(self.deleting, new.deleting), with_new(self.held, new.held), allocated)

    def allocated_to(self, requests: Iterable[str]) -> dict[str, Node]:
        """The nodes of some requests, by id.

        :param requests: ids.
        """
        return {key: node for request in requests for key, node in self.allocated.get(request, {}).items()}


# Records without an owner: of providers, pools and labels that no running daemon serves. And things in clouds
# that another installation has to look after.


@dataclass(frozen=True)
class Ownerless:
    """What is left of a subject.

    :param kind: ``provider``, ``pool``, ``label`` or ``uploads`` (of a provider that launchers serve).
    :param nodes: its nodes. ``uploads``: uploads of images to it.
    """

    kind: str
    name: str
    nodes: Sequence[Node] = ()
    uploads: int = 0

    @property
    def since(self) -> float | None:
        """When the node that is in its state for longest got it, in seconds since the epoch; None = not known."""
        return min((node.state_time for node in self.nodes if node.state_time is not None), default=None)

    @property
    def count(self) -> int:
        """Records."""
        return len(self.nodes) + self.uploads

    @property
    def left(self) -> str:
        """What is left, e.g. ``2 nodes (1 in-use, 1 ready) and 3 uploads``."""
        by_state = Counter(str(node.state) for node in self.nodes)
        which = ", ".join(f"{count} {state}" for state, count in sorted(by_state.items()))
        parts = [f"{counted(len(self.nodes), 'node')} ({which})"] if self.nodes else []
        parts += [counted(self.uploads, "upload")] if self.uploads else []
        return " and ".join(parts)

    @property
    def text(self) -> str:
        """Who is missing, and what is left."""
        if self.kind == "uploads":
            return f"no builder has provider {self.name}, to which there {self._is_or_are} {self.left}"
        return f"no launcher serves {self.kind} {self.name}, of which there {self._is_or_are} {self.left}"

    @property
    def _is_or_are(self) -> str:
        return "is" if self.count == 1 else "are"

    @property
    def remedy(self) -> str:
        """What ends it."""
        if self.kind == "provider":
            return (
                f"start the launcher that has provider {self.name}; if it was removed from the configuration, "
                "put it back with max-servers: 0 until its nodes and uploads are deleted; "
                f"or nodepool erase {self.name} forgets them, and what is in the cloud stays there"
            )
        if self.kind == "uploads":
            return f"add provider {self.name} to the configuration of a builder, which deletes what no label uses"
        ids = " ".join(node.key for node in self.nodes[:5])
        return f"nodepool delete {ids} deletes {'it' if len(self.nodes) == 1 else 'them'}"


def of_provider(name: str, seen: Observed) -> Ownerless | None:
    """What is left of a provider that no launcher serves; None = one serves it, or nothing is left."""
    if _is_served(name, seen):
        return None
    return next((one for one in ownerless(seen) if (one.kind, one.name) == ("provider", name)), None)


def of_uploads(provider: str, seen: Observed) -> Ownerless | None:
    """Uploads to a provider that launchers serve, and no builder; None = there are none."""
    return next((one for one in ownerless(seen) if (one.kind, one.name) == ("uploads", provider)), None)


def of_node(node: Node, seen: Observed) -> Ownerless | None:
    """The group of a node without an owner; None = it has one."""
    place = _place(node, seen) if seen.registered else None
    return None if place is None else next(one for one in ownerless(seen) if (one.kind, one.name) == place)


def ownerless(seen: Observed) -> Iterator[Ownerless]:
    """All of it, by kind and name; nothing while no launcher is registered at all."""
    if not seen.registered:
        return
    groups: dict[tuple[str, str], list[Node]] = {}
    for node in seen.nodes.values():
        place = _place(node, seen)
        if place is not None:
            groups.setdefault(place, []).append(node)
    uploads = _uploads(seen)
    looked_after = _of_all_builders(seen)
    for provider in uploads.keys() - (_uploaded_to(seen) if looked_after is None else looked_after):
        if not _is_served(provider, seen):
            groups.setdefault(("provider", provider), [])
        elif looked_after is not None:
            groups["uploads", provider] = []
    for kind, name in sorted(groups, key=lambda place: (_KINDS.index(place[0]), place[1])):
        nodes = sorted(groups[kind, name], key=lambda node: node.key)
        yield Ownerless(kind, name, nodes, uploads[name] if kind in ("provider", "uploads") else 0)


_KINDS: Final = ("provider", "uploads", "pool", "label")


def _is_served(provider: str, seen: Observed) -> bool:
    """Does a launcher serve a provider, or have it in its configuration?"""
    return provider in seen.providers or provider in seen.absent_providers


def _place(node: Node, seen: Observed) -> tuple[str, str] | None:
    """Which subject of a node no launcher serves."""
    if not node.provider:
        return None
    if not _is_served(node.provider, seen):
        return "provider", node.provider
    if node.state != states.READY or node.allocated_to is not None or node.provider in seen.absent_providers:
        # A launcher with the provider looks after it: it is in use, or on its way.
        return None
    if node.pool and f"{node.provider}/{node.pool}" not in seen.pool_names:
        return "pool", f"{node.provider}/{node.pool}"
    if node.type and not seen.labels.intersection(node.type):
        return "label", ", ".join(node.type)
    return None


def _uploads(seen: Observed) -> Counter[str]:
    """Provider -> uploads."""
    found: Counter[str] = Counter()
    for image in seen.images.images.values():
        for build in image.builds.values():
            found.update({provider: len(uploads) for provider, uploads in build.uploads.items() if uploads})
    return found


def _of_all_builders(seen: Observed) -> frozenset[str] | None:
    """Providers whose uploads builders look after; None = not all registered builders report it."""
    if not seen.builders:
        return None
    if not seen.builders <= seen.builder_providers.keys():
        return None
    return frozenset().union(*seen.builder_providers.values())


def _uploaded_to(seen: Observed) -> set[str]:
    """Providers that have a new build of an image: a builder serves them, perhaps without any pool."""
    found: set[str] = set()
    for image in seen.images.images.values():
        uploaded = [build for build in image.builds.values() if any(build.uploads.values())]
        # The newest one may be on its way to some of them.
        for build in sorted(uploaded, key=lambda build: (build.time, build.id))[-2:]:
            found.update(provider for provider, uploads in build.uploads.items() if uploads)
    return found


#: Subject of checks of what another installation has.
OTHERS: Final = "other installations"


def of_other(provider: str, installation: str, count: int) -> str:
    """D-10: what another installation has in the cloud of a provider."""
    return f"another installation, {installation}, has {counted(count, 'thing')} in the cloud of provider {provider}"


def end_of_other(provider: str, installation: str) -> str:
    """What ends it."""
    return (
        f"if it is in use, give provider {provider} another name in one of the two installations; "
        f"if its ZooKeeper was lost, nodepool installation adopt {installation} takes it over"
    )


def host_name(name: str) -> str:
    """``host`` of ``user@host:port``."""
    return name.rpartition(":")[0].rpartition("@")[2]


# What a name stands for, of whatever kind it is.

#: Kinds of subjects, in the order in which a name is looked for. Then an address of a node is.
KINDS: Final = ("request", "node", "provider", "pool", "label", "host", "launcher", "image", "build", "tenant")
#: An id of a node or a request, which may lack its leading zeros; that of a request may lack its priority, too.
_ID: Final = re.compile(r"(?:(\d{3})-)?(\d{1,10})")
#: Fields of a node with its names and addresses.
_ADDRESSES: Final = ("interface_ip", "public_ipv4", "private_ipv4", "public_ipv6", "private_ipv6", "hostname")
_UPLOAD_PATH: Final = re.compile(r"/nodepool/images/([^/]+)/builds/([^/]+)/")


class UnclearName(LookupError):
    """A name may stand for several things. The text says for which."""


def names(seen: Observed) -> dict[str, set[str]]:
    """Names of all that there is, by kind; a host and a launcher have two."""
    hosts = {host.name for status in seen.statuses for host in status.hosts}
    launchers = {*(one.host for one in seen.launchers), *(pool.host for pool in seen.pools.values())}
    images = seen.images.images
    users: list[Node | NodeRequest] = [*seen.nodes.values(), *seen.requests.values()]
    wanted = (label for request in seen.requests.values() for label in request.node_types)
    limited = (tenant for launcher in seen.launchers for tenant in launcher.tenant_limits)
    left = (one.name for one in ownerless(seen) if one.kind == "provider")
    return {
        "request": {*seen.requests},
        "node": {*seen.nodes},
        "provider": {*seen.providers, *seen.absent_providers, *left},
        "pool": {*seen.pool_names},
        "label": {*seen.labels, *wanted},
        "host": {*hosts, *map(host_name, hosts)},
        "launcher": {*launchers, *(host.partition(".")[0] for host in launchers)},
        "image": {*images, *seen.cloud_images, *(image_of(node)[0] for node in seen.nodes.values())},
        "build": {f"{image}-{build}" for image, view in images.items() for build in view.builds},
        "tenant": {*limited, *(one.tenant_name for one in users if one.tenant_name)},
    }


def meant(name: str, seen: Observed, kinds: Sequence[str] = KINDS) -> tuple[str, str] | None:
    """Kind and full name of what a name stands for; None = nothing. A pool is ``<provider>/<pool>``.

    An id may be one of what does not exist any more. An address stands for the node that has it.

    :param kinds: that come into question.
    :raises UnclearName: an id without zeros or priority, or an address, is that of several.
    """
    known = names(seen)
    for kind in kinds:
        if name in known[kind]:
            full = [pool.host for pool in seen.pools.values() if pool.host.partition(".")[0] == name]
            return kind, full[0] if full and kind == "launcher" else name
    having = [key for key, node in seen.nodes.items() if name in (getattr(node, one) for one in _ADDRESSES)]
    if having and "node" in kinds:
        return _only(name, [f"node {key} ({seen.nodes[key].state})" for key in having])
    return _by_number(name, seen, kinds)


def _only(name: str, found: Sequence[str]) -> tuple[str, str] | None:
    if len(found) > 1:
        raise UnclearName(f"{name} may be {' or '.join(sorted(found))}: say which")
    kind, key = found[0].split()[:2]
    return kind, key


def similar(name: str, seen: Observed) -> str:
    """What may be meant by a name that stands for nothing; empty = nothing is near. No id is near to another one."""
    if _ID.fullmatch(name):
        return "; no such id has been given yet"
    return did_you_mean(name, {near for kind, known in names(seen).items() if kind not in KINDS[:2] for near in known})


def _by_number(name: str, seen: Observed, kinds: Sequence[str]) -> tuple[str, str] | None:
    """What exists comes first, then what must have existed."""
    if (match := _ID.fullmatch(name)) is None:
        return None
    number, end = f"{int(match[2]):010}", f"{match[1] or ''}-{int(match[2]):010}"
    past = {event.subject.removeprefix("request ") for event in seen.events} | seen.node_index.allocated.keys()
    past |= {number} if seen.was_issued("node", int(number)) else set()
    past |= {end} if match[1] and seen.was_issued("request", int(number)) else set()
    for known in ({*seen.nodes, *seen.requests}, past):
        found = [f"node {number}"] if number in known and match[1] is None and "node" in kinds else []
        if name != number and "request" in kinds:
            found += [f"request {key}" for key in known if key.endswith(end)]
        if found:
            return _only(name, found)
    return None


def image_of(node: Node) -> tuple[str, str | None]:
    """Image and build of a node; an image of the cloud has no build."""
    found = _UPLOAD_PATH.match(node.image_id or "")
    return (found[1], found[2]) if found else (node.image_id or "", None)
