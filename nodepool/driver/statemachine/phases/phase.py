# SPDX-License-Identifier: Apache-2.0
"""What the phases of a launch have in common."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Protocol

from nodepool.clock import wall_time
from nodepool.model.pool_status import LaunchStatus

if TYPE_CHECKING:
    from nodepool.driver.config import ConfigPool, LabelSettings
    from nodepool.model.node import Node
    from nodepool.model.request import NodeRequest


#: ``launch-retries``, ``launch-timeout`` and ``boot-timeout`` of a provider whose driver does not know them.
LAUNCH_RETRIES: Final = 3
LAUNCH_SECONDS: Final = 3600.0
BOOT_SECONDS: Final = 120.0


class Phase(Protocol):
    """A part of a launch that goes on in steps."""

    @property
    def name(self) -> str:
        """Of its step, see `nodepool.model.pool_status.LaunchStatus`. Any thread."""
        ...

    def step(self) -> float | None:
        """Do what can be done now; blocks for single round trips at most.

        :return: seconds until the next step; None = the phase is over.
        :raises Exception: the attempt failed.
        """
        ...


class NodeWrites(Protocol):
    """What the phases use of ZooKeeper."""

    def surelyLocked(self, node: Node) -> bool: ...

    def storeNode(self, node: Node) -> None: ...


@dataclass(frozen=True)
class LaunchOrder:
    """What is to be launched, and for whom. A reload of the configuration changes nothing here (L-17).

    :param node: locked by us; the phases fill its fields.
    :param settings: configuration of the provider.
    """

    node: Node
    label: LabelSettings
    pool: ConfigPool
    settings: Any
    request: NodeRequest

    # Drivers written for 11.0.0 may have no such keys; then the defaults of all others hold.

    @property
    def launch_retries(self) -> int:
        return int(getattr(self.settings, "launch_retries", LAUNCH_RETRIES))

    @property
    def launch_timeout(self) -> float:
        return float(getattr(self.settings, "launch_timeout", LAUNCH_SECONDS))

    @property
    def boot_timeout(self) -> float:
        return float(getattr(self.settings, "boot_timeout", BOOT_SECONDS))


class LaunchSteps:
    """In which step a launch is, and since when. The task of the launch notes it; any thread may read it."""

    def __init__(self, order: LaunchOrder) -> None:
        self._order = order
        self._begun = wall_time()
        self._now = LaunchStatus(step="begin", since=self._begun)

    def note(self, phase: Phase, left: float) -> None:
        """The launch is in this phase now. :param left: of the time of the attempt, in seconds."""
        name, text = phase.name, getattr(phase, "text", "")
        if (name, text) == (self._now.step, self._now.text):
            return
        now = wall_time()
        since = self._now.since if name == self._now.step else now
        if name == "keys":
            ends, option = now + self._order.boot_timeout, "boot-timeout"
        else:
            ends, option = now + left, "launch-timeout"
        self._now = LaunchStatus(step=name, text=text, since=since, ends=ends, option=option)

    def status(self) -> LaunchStatus:
        """The step, and what the launch is for."""
        return replace(self._now, node=self._order.node.key, label=self._order.label.name, begun=self._begun)
