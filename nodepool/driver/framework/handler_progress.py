# SPDX-License-Identifier: Apache-2.0
"""`HandlerProgress`: how far a request is, and the nodes that it has so far (reference/driver 3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nodepool.clock import wall_time
from nodepool.driver.framework.handler_hooks import HandlerHooks
from nodepool.driver.framework.nodeset import NodeSet
from nodepool.plan.request_stage import ENDED, UNFINISHED, Progress, Stage

if TYPE_CHECKING:
    from nodepool.driver.framework.worker_view import PoolWorkerView
    from nodepool.model.node import Node
    from nodepool.model.reasons import Reason
    from nodepool.model.request import NodeRequest


class HandlerProgress(HandlerHooks):
    """State of `nodepool.driver.handler.NodeRequestHandler`.

    :param pw: the pool worker, see `PoolWorkerView`.
    :param request: locked by the pool worker before it is served.
    """

    def __init__(self, pw: PoolWorkerView, request: NodeRequest) -> None:
        super().__init__(pw, request)
        #: The only place that says how far the request is.
        self.progress = Progress(request.key, wall_time())
        self.node_set = NodeSet(self)

    @property
    def nodeset(self) -> list[Node]:
        """Nodes gathered so far, locked by us, in the order of ``request.node_types``."""
        return self.node_set.nodes

    @nodeset.setter
    def nodeset(self, nodes: list[Node]) -> None:
        """For drivers that were written when this was a plain list."""
        self.node_set.replace(nodes)

    @property
    def paused(self) -> bool:
        """Does the request wait for room? The pool takes nothing new meanwhile."""
        return self.progress.stage is Stage.PAUSED

    @paused.setter
    def paused(self, value: bool) -> None:
        """For drivers that were written when this was a flag. A request that ends, or has ended, does not wait."""
        if value and self.progress.stage in (Stage.GATHERING, Stage.LAUNCHING):
            self.move(Stage.PAUSED)
        elif not value and self.paused:
            self.move(Stage.GATHERING)

    @property
    def done(self) -> bool:
        """Has the handler nothing more to do?"""
        return self.progress.stage in ENDED

    @done.setter
    def done(self, value: bool) -> None:
        """For drivers that were written when this was a flag."""
        if value and not self.done:
            self.move(Stage.DONE)
        elif not value and self.done:
            self.move(Stage.GATHERING)

    @property
    def unfinished(self) -> bool:
        """Must `run` be called again? There was no room, or the connection was lost in between."""
        return self.progress.stage in UNFINISHED

    @property
    def launching(self) -> bool:
        """Is every node there, or being launched?"""
        return self.progress.stage is Stage.LAUNCHING

    def move(self, stage: Stage, reason: Reason | None = None) -> None:
        """Go to another stage, unless the request is there already. Raises ImpossibleMove.

        :param reason: why, if the stage alone does not say it.
        """
        if self.progress.stage is not stage:
            self.progress.move(stage, wall_time(), reason)
