# SPDX-License-Identifier: Apache-2.0
"""Records without an owner: of providers, pools, labels and builders that no running daemon serves.

And things in clouds that another installation has to look after.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from nodepool.model import states
from nodepool.model.event import counted
from nodepool.model.maintenance import Maintenance, host_name

if TYPE_CHECKING:
    from nodepool.model.node import Node
    from nodepool.plan.observed import Observed

#: What ends a maintenance record of each kind.
_ENDS: Final = {"host": "release {}", "image": "image-unpause {}"}


@dataclass(frozen=True)
class Ownerless:
    """What is left of a subject.

    :param kind: ``provider``, ``pool``, ``label``, ``uploads`` (of a provider that launchers serve) or ``builder``.
    :param nodes: its nodes. ``uploads``: uploads of images to it. ``builds``: builds with files on it.
    """

    kind: str
    name: str
    nodes: Sequence[Node] = ()
    uploads: int = 0
    builds: int = 0

    @property
    def since(self) -> float | None:
        """When the node that is in its state for longest got it, in seconds since the epoch; None = not known."""
        return min((node.state_time for node in self.nodes if node.state_time is not None), default=None)

    @property
    def count(self) -> int:
        """Records."""
        return len(self.nodes) + self.uploads + self.builds

    @property
    def left(self) -> str:
        """What is left, e.g. ``2 nodes (1 in-use, 1 ready) and 3 uploads``."""
        by_state = Counter(str(node.state) for node in self.nodes)
        which = ", ".join(f"{count} {state}" for state, count in sorted(by_state.items()))
        parts = [f"{counted(len(self.nodes), 'node')} ({which})"] if self.nodes else []
        parts += [counted(self.uploads, "upload")] if self.uploads else []
        parts += [counted(self.builds, "build")] if self.builds else []
        return " and ".join(parts)

    @property
    def text(self) -> str:
        """Who is missing, and what is left."""
        if self.kind == "builder":
            return f"builder {self.name} is not registered, and has the files of {self.left}"
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
        if self.kind == "builder":
            return f"start builder {self.name} again, or nodepool dib-image-delete deletes its builds"
        if self.kind == "uploads":
            return f"add provider {self.name} to the configuration of a builder, which deletes what no label uses"
        ids = " ".join(node.key for node in self.nodes[:5])
        return f"nodepool delete {ids} deletes {'it' if len(self.nodes) == 1 else 'them'}"


def ownerless(seen: Observed) -> list[Ownerless]:
    """All of it, by kind and name; nothing while no launcher is registered at all."""
    return [*_of_launchers(seen), *_of_builders(seen)]


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


def _of_launchers(seen: Observed) -> Iterator[Ownerless]:
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


def _of_builders(seen: Observed) -> Iterator[Ownerless]:
    if seen.builders is None:
        return
    builds = Counter(
        build.record.builder
        for image in seen.images.images.values()
        for build in image.builds.values()
        if build.record is not None and build.record.builder
    )
    # Builds have the full name of the host, entries of the registry the short one.
    running = {host.partition(".")[0] for host in seen.builders}
    for builder in sorted(builds):
        if builder.partition(".")[0] not in running:
            yield Ownerless("builder", builder, builds=builds[builder])


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


def subject_is_served(record: Maintenance, seen: Observed) -> bool:
    """Is there what a maintenance record is about?"""
    match record.kind:
        case "provider":
            return _is_served(record.name, seen)
        case "pool":
            return record.name in seen.pool_names
        case "label":
            return record.name in seen.labels
        case "launcher":
            launchers = [pool.host for pool in seen.pools.values()] + [launcher.host for launcher in seen.launchers]
            return record.name in launchers
    if record.kind != "host" or any(status.omitted for status in seen.statuses):
        return True
    hosts = {host.name for status in seen.statuses for host in status.hosts}
    return record.name in hosts or any(host_name(name) == record.name for name in hosts)


def end_of(record: Maintenance) -> str:
    """The command that ends a maintenance record."""
    return f"nodepool {_ENDS.get(record.kind, 'resume ' + record.kind + ' {}').format(record.name)}"
