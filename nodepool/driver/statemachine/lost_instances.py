# SPDX-License-Identifier: Apache-2.0
"""Nodes whose instance is gone although nobody deleted it: spot instances that the cloud took away, above all."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, Protocol

from nodepool.clock import monotonic
from nodepool.driver import gateway
from nodepool.driver.statemachine import metadata
from nodepool.metrics import instances as metrics
from nodepool.model import states
from nodepool.model.lost_instance import LostInstance
from nodepool.plan.seen_twice import SeenTwice

if TYPE_CHECKING:
    from nodepool.driver.statemachine.adapter import Log
    from nodepool.driver.statemachine.instance import Instance

#: States of nodes that have an instance, which nobody deletes.
_ALIVE: Final = (states.READY, states.IN_USE, states.HOLD)
#: What nobody takes is forgotten.
_MOST: Final = 1000


class LosingProvider(Protocol):
    """What is asked of the provider."""

    name: str
    adapter: Any

    def living_nodes(self, states: Iterable[str]) -> dict[str, Any]:
        """External ids of this provider's nodes in some states, by node id. Does not block for the cloud."""
        ...


class LostInstances:
    """Compares each list of instances with the nodes. One thread looks at a time; ``_lock`` guards what is found.

    :param lag_seconds: of lists, see `Adapter`.
    """

    def __init__(self, provider: LosingProvider, log: Log, lag_seconds: float) -> None:
        self._provider = provider
        self._log = log
        # A node was stored before the first of two lists began, and the second one is not too young to show it.
        self._absent: SeenTwice[str] = SeenTwice(lag_seconds)
        self._told: set[str] = set()
        self._lock = threading.Lock()
        self._found: deque[LostInstance] = deque(maxlen=_MOST)

    def look(self, listed: Iterable[Instance]) -> bool:
        """A complete list came. Was an instance missed for the first time? Then another look, soon, will tell."""
        name = self._provider.name
        there = {metadata.node_id_of(found.metadata, name) for found in listed if not found.deleted}
        alive = self._provider.living_nodes(_ALIVE)
        absent = alive.keys() - there
        certain = self._absent.look(absent, monotonic())
        self._told &= absent
        for node_id in sorted(certain - self._told):
            self._told.add(node_id)
            self._tell(node_id, alive[node_id])
        return self._absent.new

    def _tell(self, node_id: str, external_id: Any) -> None:
        reason = gateway.why_lost(self._provider.name, self._provider.adapter, external_id)
        if reason is None:
            return
        code, text = reason
        self._log.warning("Instance %s of node %s is gone: %s: %s", external_id, node_id, code, text)
        metrics.report_end(self._provider.name, code)
        with self._lock:
            self._found.append(LostInstance(node_id, code, text))

    def take(self) -> list[LostInstance]:
        """What was found since the last call. Any thread."""
        with self._lock:
            found = list(self._found)
            self._found.clear()
        return found
