# SPDX-License-Identifier: Apache-2.0
"""`ExampleAdapter`: what the framework asks of the cloud."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from nodepool.driver.framework.uploads import CountingFile, ImageContent, check_stored
from nodepool.driver.statemachine import (
    SWEEP_LIST_SECONDS,
    Adapter,
    Creation,
    CreationKey,
    CreationMachine,
    DeletionMachine,
    Instance,
    InstanceCloud,
    ListedImage,
    Resource,
)
from nodepool.driver.utils import QuotaInformation
from nodepool.exceptions import LaunchStatusException, NotFound, RuntimeConfigurationException
from nodepool.guard import OnError

from .client import Client
from .types import Machine

if TYPE_CHECKING:
    from nodepool.driver.statemachine.adapter import Log
    from nodepool.model.request import NodeRequest

    from .config import ExampleProviderConfig


# [instance]
class ExampleInstance(Instance):
    """A machine, in the words of the framework."""

    def load(self, machine: Machine) -> None:
        self.external_id = machine.id
        self.ready = machine.status == "running"
        self.deleted = machine.status == "deleting"
        self.metadata = dict(machine.metadata)
        self.interface_ip = self.public_ipv4 = machine.address
        self.az = machine.zone
        self._used = QuotaInformation(instances=1, cores=machine.cores, ram=machine.ram)

    def getQuotaInformation(self) -> QuotaInformation:
        return self._used


# [resource]
class ExampleResource(Resource):
    """A machine or an image that might be left over."""

    def __init__(self, kind: str, id: str, metadata: Mapping[str, str]) -> None:
        super().__init__(dict(metadata), kind)
        self.id = id


# [cloud]
class Machines(InstanceCloud[Machine]):
    """What launches and deletions share: one list for all, and threads for their calls."""

    # Lists may be so late.
    lag_seconds = 1.0

    def __init__(self, provider: str, client: Client) -> None:
        super().__init__(provider)
        self.client = client

    def list_instances(self, since: str | None) -> list[Machine]:
        return self.client.machines()

    def get_instance(self, record_id: str) -> Machine:
        return self.client.machine(record_id)

    def delete_instance(self, record_id: str) -> None:
        self.client.delete_machine(record_id)


# [create]
class MachineCreation(CreationMachine[Machine]):
    """Makes a machine and waits until it runs. This cloud knows the key of a creation that it has seen before."""

    idempotent = True

    def __init__(
        self, machines: Machines, order: dict[str, Any], label_name: str, metadata: dict[str, str], log: Log
    ) -> None:
        super().__init__(machines, label_name, metadata, log)
        self._client = machines.client
        self._order = order

    def create(self, key: CreationKey) -> str:
        return self._client.create_machine({**self._order, "tags": self.metadata, "key": key.text}, self.permit)

    def seen(self, record: Machine) -> Instance | bool:
        if record.status in ("error", "deleting"):
            raise LaunchStatusException(f"machine {record.id} is {record.status}")
        return ExampleInstance(record) if record.status == "running" else False


# [delete]
class MachineDeletion(DeletionMachine[Machine]):
    """Deletes a machine and waits until it does not exist any more."""

    def begun(self, record: Machine) -> bool:
        return record.status == "deleting"


# [adapter]
class ExampleAdapter(Adapter):
    """One cloud. Making it does not ask the cloud."""

    lag_seconds = Machines.lag_seconds
    # The machines of launches and deletions share nothing but what is safe in several threads.
    advance_threads = 8

    def __init__(self, provider_config: ExampleProviderConfig) -> None:
        super().__init__(provider_config)
        self._client = Client(provider_config.url, provider_config.rate)
        self._machines = Machines(provider_config.name, self._client)
        self._machines.on_room = lambda: self.on_room()
        # The framework uses them, too.
        self.shared_threads = self._machines.threads

    def stop(self) -> None:
        self._machines.stop()

    # [machines]
    def getCreateStateMachine(
        self,
        hostname: str,
        label: Any,
        image_external_id: Any,
        metadata: dict[str, str],
        request: NodeRequest,
        az: str | None,
        log: Log,
    ) -> MachineCreation:
        image = image_external_id or label.cloud_image.name
        order = {"name": hostname, "size": label.size, "image": image, "zone": az}
        return MachineCreation(self._machines, order, label.name, metadata, log)

    def getDeleteStateMachine(self, external_id: Any, log: Log) -> MachineDeletion:
        return MachineDeletion(self._machines, external_id, log)

    # [lists]
    def listInstances(self) -> list[Instance]:
        return [ExampleInstance(machine) for machine in self._machines.inventory.all(max_age=0.0)]

    def unansweredCreations(self) -> Iterable[Creation]:
        return self._machines.unanswered()

    def listResources(self) -> Iterator[Resource]:
        for machine in self._machines.inventory.all(SWEEP_LIST_SECONDS):
            yield ExampleResource("machine", machine.id, machine.metadata)
        for image in self._client.images():
            yield ExampleResource("image", image["id"], image["tags"])

    def deleteResource(self, resource: Resource) -> None:
        assert isinstance(resource, ExampleResource)
        if resource.type == "machine":
            self._client.delete_machine(resource.id)
        else:
            self._client.delete_image(resource.id)

    # [quota]
    def getQuotaLimits(self) -> QuotaInformation:
        return QuotaInformation(default=math.inf, **self._client.limits())

    def getQuotaForLabel(self, label: Any) -> QuotaInformation:
        sizes = self._client.sizes()
        if label.size not in sizes:
            known = ", ".join(sorted(sizes))
            raise RuntimeConfigurationException(f"the cloud has no size {label.size!r}, only: {known}")
        return QuotaInformation(instances=1, **sizes[label.size])

    # [labels]
    def getAZs(self) -> list[str | None]:
        return [*self._client.zones()]

    def labelReady(self, label: Any) -> bool:
        return label.cloud_image is None or label.cloud_image.name in [image["name"] for image in self._client.images()]

    # [images]
    def uploadImage(
        self,
        provider_image: Any,
        image_name: str,
        filename: str,
        image_format: str | None = None,
        metadata: dict[str, str] | None = None,
        md5: str | None = None,
        sha256: str | None = None,
    ) -> str:
        # The metadata says whose the image is, so it wins.
        image_id = self._client.create_image(image_name, image_format, {**provider_image.meta, **(metadata or {})})
        # Whatever it was, half an image must not stay; the builder hears of it.
        with OnError(lambda _: self.deleteImage(image_id)):
            with open(filename, "rb") as file:
                # It tells the builder how far the upload is.
                content = CountingFile(file)
                stored = self._client.upload_image(image_id, content)
            sent = ImageContent.of(content.size, md5=md5)
            check_stored(image_name, sent, ImageContent.of(stored["size"], md5=stored["md5"]))
        return image_id

    def deleteImage(self, external_id: str) -> None:
        try:
            self._client.delete_image(external_id)
        except NotFound:
            return

    def listImages(self) -> Iterator[ListedImage]:
        for image in self._client.images():
            yield ListedImage(image["id"], image["name"], image["tags"])

    # [trouble]
    def getConsoleLog(self, label: Any, external_id: Any) -> str | None:
        return self._client.console(external_id) if label.console_log else None
