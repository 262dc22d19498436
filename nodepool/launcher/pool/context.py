# SPDX-License-Identifier: Apache-2.0
"""What a pool worker uses of its launcher."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from nodepool.driver.interface import Provider
    from nodepool.launcher.event_ring import EventRing
    from nodepool.launcher.free_counts import FreeCounts
    from nodepool.launcher.maintenance_state import MaintenanceState
    from nodepool.launcher.pool_registry import PoolRegistry
    from nodepool.model.quota import QuotaInformation
    from nodepool.model.reasons import Reason
    from nodepool.zk.nodepool_cache import NodepoolCache
    from nodepool.zk.zookeeper import ZooKeeper


class Sibling(Protocol):
    """What a pool worker sees of another one of its launcher, and of itself."""

    @property
    def launcher_id(self) -> str: ...

    def own_launches(self) -> int:
        """Launches in progress for the requests of this pool."""

    def fulfils(self, request_id: str) -> bool:
        """Is it about to fulfil a request with ready nodes?"""

    def declined(self, request_id: str) -> Reason | None:
        """Why it declined a request; None = it did not, or that is long ago."""

    def wake(self) -> None:
        """Make a pass soon. Does not block."""


@dataclass(frozen=True)
class PoolContext:
    """The same for all pools of a launcher. Any thread may call what is in here."""

    version: str
    zk: ZooKeeper
    cache: NodepoolCache
    #: The registered pools of all launchers.
    pools: PoolRegistry
    free_counts: FreeCounts
    events: EventRing
    maintenance: MaintenanceState
    #: What to do about labels that no pool has, as an addition to a sentence.
    label_hint: Callable[[Collection[str]], str]
    #: The running provider of a name; None = there is none now.
    provider: Callable[[str], Provider | None]
    #: ``tenant-resource-limits`` of the configuration.
    tenant_limits: Callable[[], Mapping[str, dict[str, float]]]
    #: What all nodes of a tenant use, of all providers.
    tenant_use: Callable[[str], QuotaInformation]
    #: The workers of all pools of this launcher.
    siblings: Callable[[], Sequence[Sibling]]
    #: Those of one provider, also of pools that retire.
    siblings_of: Callable[[str], Sequence[Sibling]]
    #: As `tenant_use`, without having anything read.
    known_tenant_use: Callable[[str], QuotaInformation]
    #: Of the configuration that is in effect.
    config_digest: Callable[[], str]
    #: Told the id of a pool after each pass of it. Does not block.
    passed: Callable[[str], None]
    #: A request's lock directory is there although nobody holds it: it must go with the request.
    lock_dir_lingers: Callable[[str], None]
