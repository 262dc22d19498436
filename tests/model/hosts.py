# SPDX-License-Identifier: Apache-2.0
"""The static hosts of the simulated world: the real provider, with hosts that are there or not."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from nodepool.driver.framework.keyscan import ScanFailed
from nodepool.driver.static import StaticDriver
from nodepool.driver.static.provider import RESYNC_SECONDS, ZK_RETRY_SECONDS, StaticProvider
from nodepool.exceptions import ZKException
from nodepool.plan.static import HostFacts, HostSpec

if TYPE_CHECKING:
    from nodepool.zk.zookeeper import ZooKeeper
    from tests.model.launcher import Launcher
    from tests.model.world import World


class Hosts:
    """Machines in a rack."""

    def __init__(self, world: World) -> None:
        self._world = world
        #: Names of those that do not answer.
        self.down: set[str] = set()

    def check(self, spec: HostSpec, cancelled: threading.Event | None = None) -> HostFacts:
        """`nodepool.driver.static.checks.check_host`"""
        self._world.baton.wait(lambda: True)
        if spec.id.name in self.down:
            raise ScanFailed(f"{spec.id.name} does not answer")
        return HostFacts(("ssh-ed25519 AAAA",), "192.0.2.1")

    def is_alive(self, spec: HostSpec) -> bool:
        """`nodepool.driver.static.checks.is_alive`"""
        self._world.baton.wait(lambda: True)
        return spec.id.name not in self.down


class ModelStaticProvider(StaticProvider):
    """Its thread's passes are jobs."""

    owner: Launcher
    due: float
    busy = False

    def start(self, zk_conn: ZooKeeper) -> None:
        from tests.model.launcher import Launcher

        owner = zk_conn.client.model.world.owner  # type: ignore[attr-defined]
        assert isinstance(owner, Launcher)
        self.owner = owner
        self.prepare(zk_conn)
        if zk_conn.cache is not None:
            zk_conn.cache.maintenance.add_listener(self.wake)
        self.due = owner.world.now
        owner.racks.append(self)

    @property
    def can_begin(self) -> bool:
        return not self.busy and (self._wanted or self.owner.world.now >= self.due)

    def idle(self) -> None:
        super().idle()
        if self in self.owner.racks:
            self.owner.racks.remove(self)

    def begin(self) -> None:
        self.busy = True
        self.owner.world.spawn(f"{self.owner.name}.racks", self.owner, self._pass)

    def _pass(self) -> None:
        """What `StaticProvider._run` does in a loop."""
        self._wanted = False
        try:
            delay = self.run_once()
        except ZKException as error:
            self.log.warning("ZooKeeper: %s", error)
            delay = ZK_RETRY_SECONDS
        except Exception:
            self.log.exception("Error while comparing hosts and nodes")
            delay = RESYNC_SECONDS
        self.due = self.owner.world.now + delay
        self.busy = False


class ModelStaticDriver(StaticDriver):
    def getProvider(self, provider_config: Any) -> ModelStaticProvider:
        return ModelStaticProvider(provider_config)
