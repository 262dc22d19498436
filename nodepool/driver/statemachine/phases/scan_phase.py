# SPDX-License-Identifier: Apache-2.0
"""`ScanPhase`: wait until the instance can be logged in to, and collect its host keys (rules K)."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol

from nodepool.driver.statemachine.phases.phase import LaunchOrder
from nodepool.driver.statemachine.scheduler import WHEN_WOKEN_SECONDS
from nodepool.exceptions import LaunchKeyscanException


class KeyScans(Protocol):
    """What the phase uses of `nodepool.driver.statemachine.scans.Scans`."""

    def scan(self, host: str, port: int, timeout: float, connection_type: str | None) -> Future[tuple[str, ...]]: ...


class ScanPhase:
    """Result: ``host_keys`` of the node, unless the instance brought them.

    :param tell_failure: notified when the scan failed, before that is raised; may block, must not raise.
    :param wake: makes the next step due now.
    """

    name = "keys"

    def __init__(
        self, order: LaunchOrder, scans: KeyScans, tell_failure: Callable[[], None], wake: Callable[[], None]
    ) -> None:
        self._order = order
        self._scans = scans
        self._tell_failure = tell_failure
        self._wake = wake
        self._scan: Future[tuple[str, ...]] | None = None

    def step(self) -> float | None:
        """See `nodepool.driver.statemachine.phases.phase.Phase`."""
        node = self._order.node
        if self._scan is None:
            assert node.interface_ip is not None
            self._scan = self._scans.scan(
                node.interface_ip, node.connection_port, self._order.boot_timeout, node.connection_type
            )
            self._scan.add_done_callback(lambda _: self._wake())
        if not self._scan.done():
            return WHEN_WOKEN_SECONDS
        try:
            keys = self._scan.result()
        except LaunchKeyscanException:
            self._tell_failure()
            raise
        if not node.host_keys:
            node.host_keys = list(keys)
        return None
