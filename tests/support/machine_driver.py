# SPDX-License-Identifier: Apache-2.0
"""A driver on the state-machine framework whose cloud is the `FakeCloud`: in memory, with knobs.

``driver: machines``; `DIRECTORY` is where a launcher finds it.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from nodepool.driver.config import ConfigPool, ImageSettings
from nodepool.driver.fake import FakeLabel, FakePool, FakeProviderConfig
from nodepool.driver.fake import cloud as fake
from nodepool.driver.statemachine import Adapter, Instance, Resource, StateMachine, StateMachineDriver
from nodepool.exceptions import CloudUnavailableException, LaunchStatusException, NotFound, QuotaException
from nodepool.model.config_keys import FILLED_TEXT, FLAG, SECONDS, WHOLE, Sections, key
from nodepool.model.node import QuotaInformation

T = TypeVar("T")

DIRECTORY = Path(__file__).parent / "drivers"


class MachineLabel(FakeLabel):
    """May have an uploaded image; ``slow`` is for tests."""

    without_keys = ("cloud-image",)

    host_key_checking: bool = key(FLAG, False, "Scan host keys.")
    console_log: bool = key(FLAG, False, "Log the console.")
    diskimage: Any = key(FILLED_TEXT, None, "An uploaded image.", read=False)
    slow: int | None = key(WHOLE, None, "Read by nobody.")

    def __init__(self, pool: ConfigPool, provider: Any, data: dict[str, Any]) -> None:
        super().__init__(pool, provider, {name: value for name, value in data.items() if name != "diskimage"})
        if "diskimage" in data:
            self.cloud_image = None
            self.diskimage = ImageSettings({**data, "name": data["diskimage"]}, "image-user")
        # Here something may answer.
        self.read_keys(data, MachineLabel)


class MachinePool(FakePool):
    """May use internal addresses."""

    use_internal_ip: bool = key(FLAG, False, "Use the internal addresses.")
    labels: Any = key(Sections(MachineLabel), None, "What nodes are made of.")


class MachineProviderConfig(FakeProviderConfig):
    """The settings of the fake driver, and those that the framework adds."""

    without_keys = ()
    checks = ()

    boot_timeout: float = key(SECONDS, 60.0, "Limit of the key scan.")
    _pools: Any = key(Sections(MachinePool), None, "The pools of the provider.", name="pools")


class MachineInstance(Instance):
    """What the fake cloud lists."""

    def load(self, found: fake.FakeInstance) -> None:
        self.ready = found.status == fake.ACTIVE
        self.deleted = found.status == fake.DELETING
        self.external_id = found.id
        self.metadata = dict(found.metadata)
        self.interface_ip = self.public_ipv4 = found.address
        self.private_ipv4 = "10.0.0.1"
        self.az = found.az
        self.host_id = found.id
        self._resources = dict(found.resources)

    def getQuotaInformation(self) -> QuotaInformation:
        return QuotaInformation.from_resources(self._resources)


class CreateMachine(StateMachine):
    """Makes an instance and waits until it is up."""

    def __init__(self, adapter: MachineAdapter, hostname: str, label: Any, metadata: dict[str, str], az: str | None):
        super().__init__()
        self._adapter = adapter
        self._arguments = (hostname, label, metadata, az)

    def advance(self) -> Instance | None:
        self._adapter.before_advance(self)
        if self.state == self.START:
            hostname, label, metadata, az = self._arguments
            resources = {"cores": label.cores, "ram": label.ram}
            made = self._adapter.ask(
                lambda: self._adapter.cloud.create(hostname, metadata=metadata, resources=resources, az=az)
            )
            self.external_id = made.id
            self.state = "building"
        found = self._adapter.instance(self.external_id)
        if found is None or found.status in (fake.ERROR, fake.DELETING):
            raise LaunchStatusException(f"instance {self.external_id}: {found and found.status}")
        if found.status != fake.ACTIVE:
            return None
        self.complete = True
        return MachineInstance(found)


class DeleteMachine(StateMachine):
    """Deletes an instance and waits until it is gone."""

    def __init__(self, adapter: MachineAdapter, external_id: Any) -> None:
        super().__init__()
        self._adapter = adapter
        self.external_id = external_id

    def advance(self) -> None:
        self._adapter.before_advance(self)
        if self.state == self.START:
            self._adapter.delete(self.external_id)
            self.state = "deleting"
        self.complete = self._adapter.instance(self.external_id) is None


class MachineResource(Resource):
    def __init__(self, found: fake.FakeInstance) -> None:
        super().__init__(dict(found.metadata), "instance")
        self.id = found.id


class MachineAdapter(Adapter):
    """``hooks`` are called before each step of a machine: a test can block there, or raise."""

    advance_threads = 8
    create_machine: ClassVar[type[CreateMachine]] = CreateMachine

    def __init__(self, provider_config: MachineProviderConfig) -> None:
        super().__init__(provider_config)
        self.config = provider_config
        self.cloud = fake.FakeCloud.get(provider_config.cloud)
        self.hooks: list[Callable[[StateMachine], None]] = []
        self.calls: Counter[str] = Counter()
        self.stopped = threading.Event()
        self.consoles: list[Any] = []
        self.scan_failures: list[Any] = []
        #: So many deletions are accepted and forgotten.
        self.swallow_deletes = 0
        #: So many lists do not show what is there.
        self.hide_from_lists = 0
        self.threads: set[str] = set()
        self.cloud.set(**provider_config.knobs)

    def before_advance(self, machine: StateMachine) -> None:
        self.threads.add(threading.current_thread().name)
        for hook in list(self.hooks):
            hook(machine)

    def ask(self, call: Callable[[], T]) -> T:
        """Ask the cloud; its errors become ours."""
        try:
            return call()
        except fake.OverQuota as error:
            raise QuotaException(str(error)) from None
        except fake.NoSuchInstance as error:
            raise NotFound(str(error)) from None
        except fake.CloudError as error:
            raise CloudUnavailableException(str(error)) from None

    def instance(self, external_id: Any) -> fake.FakeInstance | None:
        return next((found for found in self.ask(self.cloud.instances) if found.id == external_id), None)

    def delete(self, external_id: Any) -> None:
        self.calls["delete"] += 1
        if self.swallow_deletes:
            self.swallow_deletes -= 1
            return
        self.ask(lambda: self.cloud.delete(external_id))

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
        self.last_image = image_external_id
        return self.create_machine(self, hostname, label, metadata, az)

    def getDeleteStateMachine(self, external_id: Any, log: Any) -> StateMachine:
        return DeleteMachine(self, external_id)

    def listInstances(self) -> Iterator[Instance]:
        self.calls["list"] += 1
        found = self.ask(self.cloud.instances)
        if self.hide_from_lists:
            self.hide_from_lists -= 1
            return
        yield from map(MachineInstance, found)

    def listResources(self) -> Iterator[Resource]:
        return map(MachineResource, self.ask(self.cloud.instances))

    def deleteResource(self, resource: Resource) -> None:
        assert isinstance(resource, MachineResource)
        self.delete(resource.id)

    def getQuotaLimits(self) -> QuotaInformation:
        self.calls["limits"] += 1
        if self.cloud.knobs.down:
            raise CloudUnavailableException("no answer")
        return QuotaInformation(default=float("inf"), **self.cloud.knobs.limits)

    def getQuotaForLabel(self, label: Any) -> QuotaInformation:
        return QuotaInformation(instances=1, cores=label.cores, ram=label.ram)

    def getConsoleLog(self, label: Any, external_id: Any) -> str:
        self.consoles.append(external_id)
        return "Kernel panic"

    def notifyNodescanFailure(self, label: Any, external_id: Any) -> None:
        self.scan_failures.append(external_id)

    def stop(self) -> None:
        self.stopped.set()


class MachineDriverBase(StateMachineDriver):
    """The driver; subclassed where a launcher looks for drivers."""

    name = "machines"

    def getProviderConfig(self, provider: dict[str, Any]) -> MachineProviderConfig:
        return MachineProviderConfig(provider)

    def getAdapter(self, provider_config: Any) -> MachineAdapter:
        return MachineAdapter(provider_config)


class MachineDriver(MachineDriverBase):
    """For tests that make providers themselves."""
