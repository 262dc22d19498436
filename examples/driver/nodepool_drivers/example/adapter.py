# SPDX-License-Identifier: Apache-2.0
"""`ExampleAdapter`: what the framework asks of the cloud."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from nodepool.driver.framework.uploads import CountingFile, ImageContent, check_stored
from nodepool.driver.statemachine import (
    SWEEP_LIST_SECONDS,
    CloudAdapter,
    CloudInstance,
    CloudResource,
    CreationKey,
    CreationMachine,
    DeletionMachine,
    ImageFile,
    Instance,
    InstanceCloud,
    ListedImage,
    ResourceKind,
    ResourceKinds,
)
from nodepool.driver.utils import QuotaInformation
from nodepool.exceptions import LaunchStatusException, NotFound, RuntimeConfigurationException
from nodepool.guard import OnError

from .client import Client
from .types import Machine

if TYPE_CHECKING:
    from .config import ExampleProviderConfig


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

    # [instance]
    def instance(self, record: Machine) -> CloudInstance:
        """A machine, in the words of the framework."""
        return CloudInstance(
            record,
            QuotaInformation(instances=1, cores=record.cores, ram=record.ram),
            ready=record.status == "running",
            deleted=record.status == "deleting",
            public_ipv4=record.address,
            az=record.zone,
        )


# [delete]
class MachineDeletion(DeletionMachine[Machine]):
    """Deletes a machine and waits until it does not exist any more."""

    def begun(self, record: Machine) -> bool:
        return record.status == "deleting"


# [create]
class MachineCreation(CreationMachine[Machine]):
    """Makes a machine and waits until it runs. This cloud knows the key of a creation that it has seen before."""

    cloud: Machines
    deletion_class = MachineDeletion
    idempotent = True

    def create(self, key: CreationKey) -> str:
        order = self.order
        machine = {
            "name": order.hostname,
            "size": self.label.size,
            "image": order.image or self.label.cloud_image.name,
            "zone": order.az,
            # They say whose it is.
            "tags": self.metadata,
            "key": key.text,
        }
        return self.cloud.client.create_machine(machine, self.permit)

    def seen(self, record: Machine) -> Instance | bool:
        if record.status in ("error", "deleting"):
            raise LaunchStatusException(f"machine {record.id} is {record.status}")
        return self.cloud.instance(record) if record.status == "running" else False


# [adapter]
class ExampleAdapter(CloudAdapter):
    """One cloud. Making it does not ask the cloud."""

    creation_class = MachineCreation

    def __init__(self, provider_config: ExampleProviderConfig) -> None:
        super().__init__(provider_config)
        self._client = Client(provider_config.url, provider_config.rate)
        self._machines = Machines(provider_config.name, self._client)
        self.use(self._machines)
        # [leftovers]
        client = self._client
        kinds = [
            ResourceKind("machine", self._all_machines, lambda found: client.delete_machine(found.id), vital=True),
            ResourceKind("image", self._all_images, lambda found: client.delete_image(found.id)),
        ]
        self.resources = ResourceKinds(provider_config.name, kinds)

    def _all_machines(self) -> Iterator[CloudResource]:
        for machine in self._machines.inventory.all(SWEEP_LIST_SECONDS):
            yield CloudResource(machine.metadata, "machine", machine.id)

    def _all_images(self) -> Iterator[CloudResource]:
        for image in self._client.images():
            yield CloudResource(image["tags"], "image", image["id"])

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
    def upload(self, file: ImageFile) -> str:
        # The metadata says whose the image is, so it wins.
        image_id = self._client.create_image(file.name, file.format, {**file.image.meta, **file.metadata})
        # Whatever it was, half an image must not stay; the builder hears of it.
        with OnError(lambda _: self.deleteImage(image_id)):
            with open(file.path, "rb") as opened:
                # It tells the builder how far the upload is.
                content = CountingFile(opened)
                stored = self._client.upload_image(image_id, content)
            sent = ImageContent.of(content.size, md5=file.md5)
            check_stored(file.name, sent, ImageContent.of(stored["size"], md5=stored["md5"]))
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
