# SPDX-License-Identifier: Apache-2.0
"""May a ready node be handed out? (rules S-9, S-10, S-17)"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Final

from nodepool.driver.static.checks import HostChecker, is_alive
from nodepool.driver.static.quarantines import Quarantines
from nodepool.driver.static.registration import StaticRegistry
from nodepool.exceptions import ZKException
from nodepool.plan import static_hosts

if TYPE_CHECKING:
    from nodepool.model.node import Node
    from nodepool.plan.static_hosts import HostId, HostSpec


def _known(result: bool) -> Future[bool]:
    future: Future[bool] = Future()
    future.set_result(result)
    return future


#: Checks of ready nodes that need none: shared, because a result that is there never changes.
_UNCHECKED: Final = _known(True)
_GONE: Final = _known(False)


class ReadyChecks:
    """Any thread may ask.

    :param checker: has the threads.
    :param slot_empty: notified of the host of a node that was refused, and what is wrong with the host, if anything is.
    :param wake: asks the provider for a pass.
    """

    def __init__(
        self,
        registry: StaticRegistry,
        quarantines: Quarantines,
        checker: HostChecker,
        slot_empty: Callable[[HostId, Exception | None], None],
        wake: Callable[[], None],
        log: logging.Logger,
    ) -> None:
        self._registry = registry
        self._quarantines = quarantines
        self._checker = checker
        self._slot_empty = slot_empty
        self._wake = wake
        self.log = log

    def start(self, node: Node) -> Future[bool]:
        """Start to check whether a ready node may be handed out (S-9, S-10); does not block.

        A node whose host does not answer, or whose slot another node has, is deregistered before the result is there.
        """
        spec = self._registry.spec_of(node)
        if spec is None:
            return _GONE
        if self._quarantines.of(spec.id) is not None:
            self._wake()
            return _GONE
        rival = self._registry.rival(node)
        if rival is not None:
            return self._checker.submit(lambda: self._refuse(node, f"node {rival.id} has the same slot", None), False)
        if not spec.check:
            return _UNCHECKED
        return self._checker.submit(lambda: self._check_alive(spec, node), False)

    def _check_alive(self, spec: HostSpec, node: Node) -> bool:
        if is_alive(spec):
            return True
        reason = f"no TCP connection within {spec.timeout_seconds:g} s"
        return self._refuse(node, reason, ConnectionError(reason))

    def _refuse(self, node: Node, reason: str, error: Exception | None) -> bool:
        """Deregister a node that must not be handed out; returns False. Blocks for two round trips.

        :param error: what is wrong with its host; None = nothing.
        """
        try:
            self._registry.deregister(node, reason)
        except ZKException as problem:
            self.log.warning("Node %s stays until the next pass: %s", node.id, problem)
        self._slot_empty(static_hosts.slot_of(node).host, error)
        return False
