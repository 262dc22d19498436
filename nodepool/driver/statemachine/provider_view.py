# SPDX-License-Identifier: Apache-2.0
"""`CloudProviderView`: what launches, deletions and leak sweeps all see of the provider that they are tasks of.

The provider makes these tasks, so their modules do not import it. What only one kind of task needs is declared in the
module of that task.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from nodepool.driver.interface import CleanupTask
    from nodepool.driver.statemachine.adapter import Adapter, Log
    from nodepool.driver.statemachine.calls import CloudCalls
    from nodepool.driver.statemachine.finder import InstanceFinder
    from nodepool.driver.statemachine.removal import Removal
    from nodepool.driver.statemachine.scheduler import Scheduler


class CloudProviderView(Protocol):
    """Parts of a `StateMachineProvider`."""

    name: str
    adapter: Adapter
    calls: CloudCalls
    finder: InstanceFinder
    scheduler: Scheduler

    def removal_of(self, external_id: Any, log: Log, wake: Callable[[], None]) -> Removal:
        """The deletion of one instance, in steps."""
        ...

    def delete_orphan(self, external_id: Any, log: Log) -> CleanupTask:
        """Delete an instance that nobody uses, in the background."""
        ...

    def invalidateQuotaCache(self) -> None:
        """Ask the cloud for its limits again, in the background."""
        ...
