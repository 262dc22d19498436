# SPDX-License-Identifier: Apache-2.0
"""`StateMachineHandler`: one request that is served with instances of a cloud."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Final

from nodepool.driver import gateway
from nodepool.driver.handler import NodeRequestHandler
from nodepool.driver.statemachine import instance
from nodepool.driver.statemachine.cloud import CloudProvider
from nodepool.driver.statemachine.launch import NodeLaunch
from nodepool.model import states
from nodepool.model.reasons import images_missing
from nodepool.plan.launch import Failure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nodepool.driver.framework.handler_hooks import PoolWorkerView
    from nodepool.model.node import Node
    from nodepool.model.reasons import Reason
    from nodepool.model.request import NodeRequest
    from nodepool.model.status import LaunchStatus


#: Who defines one of these is polled in each pass.
POLLED: Final = frozenset({"poll", "begin_poll", "launchesComplete", "alive_thread_count"})


class StateMachineHandler(NodeRequestHandler):
    """All methods are called by the pool worker's thread; none of them waits for the cloud."""

    manager: CloudProvider
    #: Has a subclass a word of its own in when launches are complete, or in what a poll looks at?
    _polled_always = False

    def __init__(self, pw: PoolWorkerView, request: NodeRequest) -> None:
        super().__init__(pw, request)
        self._launches: dict[str, NodeLaunch] = {}
        #: Nodes that somebody else was faster than.
        self._outpaced: set[str] = set()
        self._az: str | None = None
        self._az_chosen = False

    def __init_subclass__(cls, **settings: Any) -> None:
        super().__init_subclass__(**settings)
        below = cls.__mro__[: cls.__mro__.index(StateMachineHandler)]
        cls._polled_always = any(not POLLED.isdisjoint(vars(base)) for base in below)

    @property
    def awaits_launches(self) -> bool:
        """Of a hundred requests that launch, a pass finds one or two whose launches have ended."""
        if self._polled_always:
            return False
        # No generator: this is asked for each request in each pass.
        for launch in self._launches.values():  # noqa: SIM110
            if not launch.complete:
                return True
        return False

    def tells_end_of(self, node_id: str) -> bool:
        launch = self._launches.get(node_id)
        return launch is not None and not launch.complete

    @property
    def alive_thread_count(self) -> int:
        """Launches in progress; their number has nothing to do with threads here. Any thread may ask."""
        return sum(1 for launch in list(self._launches.values()) if not launch.complete)

    def launch_steps(self) -> Sequence[LaunchStatus]:
        return [launch.status for launch in list(self._launches.values()) if not launch.complete]

    def imagesAvailable(self) -> bool:
        labels = self.pool.labels
        return all(gateway.label_ready(self.manager, labels[name]) for name in set(self.request.node_types))

    def why_images_missing(self) -> Reason:
        labels = self.pool.labels
        wanted = sorted(set(self.request.node_types))
        missing = [name for name in wanted if not gateway.label_ready(self.manager, labels[name])]
        known = gateway.label_errors(self.manager)
        return images_missing(missing, {label: known[label].text for label in missing if label in known})

    def hasProviderQuota(self, node_types: list[str]) -> bool:
        return self.manager.canEverFit(self.pool, node_types)

    def hasRemainingQuota(self, ntype: str) -> bool:
        return not self.manager.calls.circuit_open and self.manager.roomForOne(self.pool, ntype)

    def has_room_now(self, ntype: str) -> bool:
        """The probe of a cloud whose limit nobody knows is left to those that launch."""
        return not self.manager.calls.circuit_open and self.manager.roomFor(self.pool, ntype) >= 1

    def room_ahead(self) -> float:
        if len(self.request.node_types) != 1 or self.manager.calls.circuit_open:
            return 1
        return self.manager.roomFor(self.pool, self.request.node_types[0])

    def checkReusableNode(self, node: Node) -> bool:
        """All in the same zone (N-7).

        It need not be one of the pool: those go from the configuration, and ``nova:host1`` is shown as ``nova``.
        """
        if self.manager.in_doubt(node.key):
            self.log.info("Node %s is not used: its instance may be lost", node.key)
            return False
        return self._az is None or node.az is None or node.az == self._az

    def nodeReusedNotification(self, node: Node) -> None:
        """The others go where this one is."""
        if node.az is not None and self._az is None:
            self._az = node.az
            self._az_chosen = True

    def setNodeMetadata(self, node: Node) -> None:
        """Everything that is known before the launch is stored with the node (L-1)."""
        if node.az is None:
            if not self._az_chosen:
                self._az = random.choice(self.manager.zones(self.pool))
                self._az_chosen = True
            node.az = self._az
        instance.describe(node, self.pool.labels[node.type[0]], self.provider)

    def launch(self, node: Node) -> None:
        if self.manager.hasPlace(self.pool, node):
            self._begin(NodeLaunch(self.manager, self, node))
            return
        self.log.info("No room for node %s: another launcher used it at the same time", node.id)
        self._outpaced.add(node.key)
        # Not stored: it is removed at the next look.
        node.state = states.ABORTED
        self.pw.wake()

    def resume(self, node: Node) -> None:
        self._begin(NodeLaunch(self.manager, self, node, resumed=True))

    def _begin(self, launch: NodeLaunch) -> None:
        node = launch.node
        self.manager.learned_limits.begun(self.pool.name, node.type[0], node.key)
        self.manager.begin_launch(launch)
        self._launches[node.key] = launch

    def let_go_of_aborted(self, node: Node) -> None:
        """A node for which nothing was made need not be searched for in the cloud, and shall not take up quota."""
        launch = self._launches.get(node.key)
        if launch is None or (launch.outcome is not None and not launch.outcome.made):
            self.zk.deleteNode(node)
        else:
            super().let_go_of_aborted(node)
        # Last: what raised is called again, and must know then what was made.
        self._launches.pop(node.key, None)

    def pause_after_abort(self) -> float:
        """0 seconds where it is known what has to happen before the next launch.

        Another launcher took the room, or the learned limit says when the cloud takes another node.
        """
        aborted = [node.key for node in self.nodeset if node.state == states.ABORTED]
        if all(node_id in self._outpaced or self._was_refused(node_id) for node_id in aborted):
            return 0.0
        return super().pause_after_abort()

    def _was_refused(self, node_id: str) -> bool:
        launch = self._launches.get(node_id)
        return launch is not None and launch.outcome is not None and launch.outcome.why is Failure.QUOTA

    def launchesComplete(self) -> bool:
        return self.alive_thread_count == 0
