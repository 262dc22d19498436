# SPDX-License-Identifier: Apache-2.0
"""Which nodes and requests a listing shows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

from nodepool.model import states
from nodepool.model.near_words import did_you_mean
from nodepool.model.request_origin import origin_of

if TYPE_CHECKING:
    from nodepool.model.node import Node
    from nodepool.model.request import NodeRequest

#: A ready node that a request has got: it is shown as a state of its own, because nobody else can get it.
ALLOCATED: Final = "allocated"


@dataclass(frozen=True)
class Filter:
    """What is wanted; an empty list or None = everything. Texts are names or patterns as of a shell, e.g. ``gpu-*``.

    :param older_than: seconds: a node in its state, a request since it was submitted.
    """

    states: Collection[str] = ()
    labels: Sequence[str] = ()
    providers: Sequence[str] = ()
    pools: Sequence[str] = ()
    tenants: Sequence[str] = ()
    older_than: float | None = None

    @property
    def everything(self) -> bool:
        """Is all wanted?"""
        narrowed = self.states or self.labels or self.providers or self.pools or self.tenants
        return not narrowed and self.older_than is None

    def node(self, node: Node, now: float) -> bool:
        """Is a node wanted? :param now: seconds since the epoch."""
        return (
            (not self.states or node.state in self.states or node_status(node) in self.states)
            and (not self.labels or matches(self.labels, node.type))
            and (not self.providers or matches(self.providers, [node.provider]))
            and (not self.pools or matches(self.pools, [node.pool, f"{node.provider}/{node.pool}"]))
            and (not self.tenants or matches(self.tenants, [node.tenant_name]))
            and self._old_enough(node.state_time, now)
        )

    def request(self, request: NodeRequest, now: float) -> bool:
        """Is a request wanted? One that any provider may serve has no provider to look for."""
        return (
            (not self.states or request.state in self.states)
            and (not self.labels or matches(self.labels, request.node_types))
            and (not self.providers or matches(self.providers, [request.provider]))
            and (not self.tenants or matches(self.tenants, [origin_of(request).get("tenant")]))
            and self._old_enough(request.created_time, now)
        )

    def _old_enough(self, moment: float | None, now: float) -> bool:
        return self.older_than is None or (moment is not None and now - moment > self.older_than)


def names_in(text: str) -> list[str]:
    """Names or patterns, divided by commas."""
    return [name for part in text.split(",") if (name := part.strip())]


def states_in(text: str, known: Sequence[str]) -> list[str]:
    """States, divided by commas.

    :raises ValueError: there is no such state. The text says which there are.
    """
    names = names_in(text)
    for name in names:
        if name not in known:
            there_are = f"(there are: {', '.join(known)})"
            raise ValueError(f"there is no state {name!r}{did_you_mean(name, known)} {there_are}")
    return names


def node_status(node: Node) -> str:
    """The state of a node, as people see it: ``allocated`` is a ready one that belongs to a request."""
    return ALLOCATED if node.state == states.READY and node.allocated_to is not None else node.state


def matches(patterns: Sequence[str], names: Iterable[str | None]) -> bool:
    """Does one of the names match one of the patterns? Without patterns every name does."""
    return not patterns or any(name is not None and fnmatchcase(name, p) for name in names for p in patterns)
