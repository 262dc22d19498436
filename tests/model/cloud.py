# SPDX-License-Identifier: Apache-2.0
"""The cloud of a simulated world, whatever it is; and the first one: the `FakeCloud` behind a plain driver.

Another cloud is another `ModelCloud`: `tests.model.cloud_api` has what clouds with an HTTP API need for that.
"""

from __future__ import annotations

import abc
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

from nodepool.driver.fake.cloud import FakeCloud
from nodepool.driver.statemachine import Instance, Resource
from nodepool.exceptions import LaunchStatusException
from nodepool.model.node import QuotaInformation
from tests.support.machine_driver import CreateMachine, MachineAdapter, MachineDriverBase, MachineProviderConfig

if TYPE_CHECKING:
    from nodepool.driver.config import ProviderConfig
    from nodepool.driver.interface import Driver
    from tests.model.world import World


C = TypeVar("C", bound="ModelCloud")


class ModelServer(NamedTuple):
    """Something that a launcher has made, as long as it costs money.

    :param metadata: says whose it is, as the driver reads it.
    """

    id: str
    metadata: Mapping[str, str]


class ModelCloud(abc.ABC):
    """What launchers of a world make their nodes in, and what can go wrong there."""

    #: ``driver`` in the configuration.
    driver_name: ClassVar[str]

    @abc.abstractmethod
    def make_driver(self) -> Driver:
        """The driver, whose calls give others a turn before and after what they do."""

    @abc.abstractmethod
    def provider_config(self, name: str, pools: Sequence[dict[str, Any]]) -> ProviderConfig:
        """The section of the provider, not loaded yet.

        :param pools: sections with name, max-servers, and labels of which there is only the name.
        """

    @property
    @abc.abstractmethod
    def creations(self) -> int:
        """Changes when something was made."""

    @abc.abstractmethod
    def servers(self) -> list[ModelServer]:
        """Whatever is there, also what is being deleted."""

    def server_of(self, external_id: Any) -> Any:
        """The id of the server that a node's record names."""
        return external_id

    @abc.abstractmethod
    def lose_answer(self) -> None:
        """The next creation works, and its answer is lost."""

    @abc.abstractmethod
    def fail_creation(self) -> None:
        """The next server does not become usable."""

    @abc.abstractmethod
    def refuse_for_quota(self) -> None:
        """The next creation is refused, because a limit is used up."""

    @abc.abstractmethod
    def set_away(self, away: bool) -> None:
        """Nothing works, or all does again."""

    @abc.abstractmethod
    def heal(self) -> None:
        """The end of all faults."""

    def close(self) -> None:
        """The world ends."""
        return


def cloud_of(world: World, kind: type[C]) -> C:
    """The cloud of a world, which is of this kind."""
    found = world.cloud
    assert isinstance(found, kind)
    return found


class FakeModelCloud(ModelCloud):
    """The `FakeCloud` of a world.

    :ivar name: of the `FakeCloud`.
    """

    driver_name = "machines"

    def __init__(self, world: World) -> None:
        self._world = world
        self.name = world.cloud_name
        self._cloud = FakeCloud.get(self.name)
        self._cloud.set(boot_seconds=world.setup.boot_seconds)

    def make_driver(self) -> SteppedDriver:
        return SteppedDriver(self._world)

    def provider_config(self, name: str, pools: Sequence[dict[str, Any]]) -> MachineProviderConfig:
        section = {"name": name, "driver": self.driver_name, "cloud": self.name, "pools": pools}
        return MachineProviderConfig(section)

    @property
    def creations(self) -> int:
        return self._cloud.calls["create"]

    def servers(self) -> list[ModelServer]:
        # The cloud has no public list of what providers must not see.
        found = [record.instance for record in self._cloud._records.values()]  # noqa: SLF001
        return [ModelServer(instance.id, instance.metadata) for instance in found]

    def lose_answer(self) -> None:
        self._cloud.set(lost_answers=1)

    def fail_creation(self) -> None:
        self._cloud.set(fail_launches=1)

    def refuse_for_quota(self) -> None:
        self._cloud.set(quota_errors=1)

    def set_away(self, away: bool) -> None:
        self._cloud.set(down=away)

    def heal(self) -> None:
        self._cloud.set(down=False, fail_launches=0, lost_answers=0, quota_errors=0)

    def close(self) -> None:
        FakeCloud.forget(self.name)


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
        self.world.baton.pause()

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
