# SPDX-License-Identifier: Apache-2.0
"""`ExampleAdapter`: what the framework asks of the cloud."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from nodepool.clock import monotonic
from nodepool.driver.statemachine import Adapter, Instance, Resource, StateMachine
from nodepool.driver.utils import QuotaInformation
from nodepool.exceptions import (
    CloudUnavailableException,
    LaunchStatusException,
    NotFound,
    RuntimeConfigurationException,
)

from .client import Client

if TYPE_CHECKING:
    from nodepool.driver.statemachine.adapter import Log
    from nodepool.model.request import NodeRequest

    from .config import ExampleProviderConfig

#: Machines that are looked at within this time share one list call.
LIST_SECONDS: Final = 1.0


# [instance]
class ExampleInstance(Instance):
    """A machine, in the words of the framework."""

    def load(self, machine: dict[str, Any]) -> None:
        self.external_id = machine["id"]
        self.ready = machine["status"] == "running"
        self.deleted = machine["status"] == "deleting"
        self.metadata = machine["tags"]
        self.interface_ip = self.public_ipv4 = machine["address"]
        self.az = machine["zone"]
        self._used = QuotaInformation(instances=1, cores=machine["cores"], ram=machine["ram"])

    def getQuotaInformation(self) -> QuotaInformation:
        return self._used


# [resource]
class ExampleResource(Resource):
    """A machine or an image that might be left over."""

    def __init__(self, kind: str, found: dict[str, Any]) -> None:
        super().__init__(found["tags"], kind)
        self.id: str = found["id"]


# [list]
class MachineList:
    """All machines. One call answers for all who ask within a second.

    ``_lock`` is held while the cloud is asked: who waits for it wants the same answer.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._begun = -math.inf
        self._machines: dict[str, dict[str, Any]] = {}
        self._error: CloudUnavailableException | None = None

    def get(self, begun_after: float = -math.inf) -> dict[str, dict[str, Any]]:
        """Machines by id.

        :param begun_after: monotonic time; a list that was asked for earlier will not do.
        """
        with self._lock:
            if self._begun <= max(begun_after, monotonic() - LIST_SECONDS):
                self._begun = monotonic()
                try:
                    self._machines = {machine["id"]: machine for machine in self._client.machines()}
                    self._error = None
                except CloudUnavailableException as error:
                    self._error = error
            if self._error is not None:
                # A new one: others may be about to raise the same object.
                raise CloudUnavailableException(str(self._error))
            return self._machines


# [create]
class CreateMachine(StateMachine):
    """Makes a machine and waits until it runs."""

    def __init__(self, client: Client, machines: MachineList, order: dict[str, Any]) -> None:
        super().__init__()
        self._client = client
        self._machines = machines
        self._order = order

    def advance(self) -> ExampleInstance | None:
        if self.state == self.START:
            self.external_id = self._client.create_machine(self._order)
            self.state = "booting"
        try:
            machine = self._machines.get().get(self.external_id)
        except CloudUnavailableException:
            # That says nothing about the machine: one bad answer must not end all that are booting.
            return None
        if machine is None:
            # The list is older than the machine. If it never shows, launch-timeout ends the attempt.
            return None
        if machine["status"] in ("error", "deleting"):
            raise LaunchStatusException(f"machine {self.external_id} is {machine['status']}")
        if machine["status"] != "running":
            return None
        self.complete = True
        return ExampleInstance(machine)


# [delete]
class DeleteMachine(StateMachine):
    """Deletes a machine and waits until it is gone."""

    def __init__(self, client: Client, machines: MachineList, external_id: Any) -> None:
        super().__init__()
        self._client = client
        self._machines = machines
        self.external_id = external_id
        self._deleted_at = math.inf

    def advance(self) -> None:
        if self.external_id is None:
            self.complete = True
            return
        if self.state == self.START:
            # NotFound is what we want: the framework takes it for the end.
            self._client.delete_machine(self.external_id)
            self._deleted_at = monotonic()
            self.state = "deleting"
        self.complete = self.external_id not in self._machines.get(begun_after=self._deleted_at)


# [adapter]
class ExampleAdapter(Adapter):
    """One cloud. Making it does not ask the cloud."""

    def __init__(self, provider_config: ExampleProviderConfig) -> None:
        super().__init__(provider_config)
        self._client = Client(provider_config.name, provider_config.url, provider_config.rate)
        self._machines = MachineList(self._client)

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
    ) -> CreateMachine:
        image = image_external_id or label.cloud_image.name
        order = {"name": hostname, "size": label.size, "image": image, "zone": az, "tags": metadata}
        return CreateMachine(self._client, self._machines, order)

    def getDeleteStateMachine(self, external_id: Any, log: Log) -> DeleteMachine:
        return DeleteMachine(self._client, self._machines, external_id)

    # [lists]
    def listInstances(self) -> list[Instance]:
        return [ExampleInstance(machine) for machine in self._machines.get(begun_after=monotonic()).values()]

    def listResources(self) -> Iterator[Resource]:
        for machine in self._client.machines():
            yield ExampleResource("machine", machine)
        for image in self._client.images():
            yield ExampleResource("image", image)

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
        try:
            self._client.upload_image(image_id, filename)
        except Exception:
            # Whatever it was, half an image must not stay; the builder hears of it.
            self.deleteImage(image_id)
            raise
        return image_id

    def deleteImage(self, external_id: str) -> None:
        try:
            self._client.delete_image(external_id)
        except NotFound:
            return

    # [trouble]
    def getConsoleLog(self, label: Any, external_id: Any) -> str | None:
        return self._client.console(external_id) if label.console_log else None
