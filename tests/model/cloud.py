# SPDX-License-Identifier: Apache-2.0
"""The cloud of the simulated world: the `FakeCloud`, with an instant before and after whatever is asked of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from nodepool.driver.statemachine import Instance, Resource
from nodepool.exceptions import LaunchStatusException
from nodepool.model.quota import QuotaInformation
from tests.support.machine_driver import CreateMachine, MachineAdapter, MachineDriverBase

if TYPE_CHECKING:
    from tests.model.world import World


class SteppedCreate(CreateMachine):
    """Others may do something right before a server is made, and right after."""

    def advance(self) -> Instance | None:
        adapter = self._adapter
        assert isinstance(adapter, SteppedAdapter)
        if self.state != self.START:
            return super().advance()
        adapter.pause()
        if not self.wanted():
            raise LaunchStatusException("not wanted any more")
        try:
            return super().advance()
        finally:
            adapter.pause()


class SteppedAdapter(MachineAdapter):
    create_machine: ClassVar[type[CreateMachine]] = SteppedCreate
    world: World

    def pause(self) -> None:
        if self.world.baton.current is not None:
            self.world.baton.wait(lambda: True)

    def listInstances(self) -> Iterator[Instance]:
        self.pause()
        return iter(list(super().listInstances()))

    def listResources(self) -> Iterator[Resource]:
        self.pause()
        return super().listResources()

    def getQuotaLimits(self) -> QuotaInformation:
        """The cloud says what it allows, and does not see to it: that is for launchers to do."""
        super().getQuotaLimits()
        return QuotaInformation(default=float("inf"), instances=self.world.layout.limit)

    def delete(self, external_id: Any) -> None:
        self.pause()
        super().delete(external_id)
        self.pause()


class SteppedDriver(MachineDriverBase):
    def __init__(self, world: World) -> None:
        self._world = world

    def getAdapter(self, provider_config: Any) -> SteppedAdapter:
        adapter = SteppedAdapter(provider_config)
        adapter.world = self._world
        return adapter
