# SPDX-License-Identifier: Apache-2.0
"""The cloud of the simulated world: the `FakeCloud`, with an instant before and after each creation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from nodepool.driver.fake import cloud as fake
from nodepool.driver.statemachine import Instance, Resource, StateMachine
from nodepool.exceptions import CloudUnavailableException, LaunchStatusException
from tests.model.baton import Baton
from tests.support.machine_driver import CreateMachine, MachineAdapter, MachineDriverBase

T = TypeVar("T")


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
    baton: Baton

    def pause(self) -> None:
        if self.baton.current is not None:
            self.baton.wait(lambda: True)

    def getCreateStateMachine(
        self,
        hostname: str,
        label: Any,
        image_external_id: Any,
        metadata: dict[str, str],
        request: Any,
        az: Any,
        log: Any,
    ) -> StateMachine:
        return SteppedCreate(self, hostname, label, metadata, az)

    def listInstances(self) -> Iterator[Instance]:
        return self._answered(super().listInstances)

    def listResources(self) -> Iterator[Resource]:
        return self._answered(super().listResources)

    def _answered(self, call: Callable[[], Iterator[T]]) -> Iterator[T]:
        self.pause()
        try:
            return iter(list(call()))
        except fake.CloudError as error:
            raise CloudUnavailableException(str(error)) from None

    def delete(self, external_id: Any) -> None:
        self.pause()
        super().delete(external_id)
        self.pause()


class SteppedDriver(MachineDriverBase):
    """:param baton: of the world."""

    def __init__(self, baton: Baton) -> None:
        self._baton = baton

    def getAdapter(self, provider_config: Any) -> SteppedAdapter:
        adapter = SteppedAdapter(provider_config)
        adapter.baton = self._baton
        return adapter
