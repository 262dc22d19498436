# SPDX-License-Identifier: Apache-2.0
"""`AzureCreation`: the launch of one VM."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Final

from nodepool.driver.azure.errors import CloudBusy
from nodepool.driver.azure.instance import AzureInstance
from nodepool.driver.azure.launch_spec import vm_body, vm_tags
from nodepool.driver.azure.machines import AzureDeletion, AzureMachines
from nodepool.driver.azure.places import VmPlace, places_of
from nodepool.driver.azure.types import DELETING, FAILED, SUCCEEDED, Addresses, VmRecord
from nodepool.driver.framework.cloud_errors import (
    CloudNoCapacity,
    CloudNoCapacityLater,
    CloudQuota,
    CloudRefused,
    nothing_sent,
)
from nodepool.driver.statemachine import CreationKey, CreationMachine, Instance
from nodepool.driver.statemachine.metadata import is_of
from nodepool.exceptions import LaunchError, LaunchStatusException
from nodepool.plan.backoff import Backoff

if TYPE_CHECKING:
    from nodepool.driver.azure.config import AzureLabel
    from nodepool.driver.statemachine.adapter import Log
    from nodepool.model.request import NodeRequest

#: Status of HTTP: there is a VM of the name.
_EXISTS: Final = 412
#: Pauses of a creation that something else is in the way of, and how many; Azure reserves an interface for 180 s.
BUSY_PAUSE: Final = Backoff(2.0, 30.0)
BUSY_TIMES: Final = 9


class AzureCreation(CreationMachine[VmRecord]):
    """Makes a VM and waits until it can be reached. A creation without an answer is sent again: its name is its key.

    :param image_name: of the upload; None = the label's cloud image.
    :param az: the zone of a node that the request has already.
    """

    idempotent = True

    cloud: AzureMachines

    def __init__(
        self,
        cloud: AzureMachines,
        hostname: str,
        label: AzureLabel,
        image_name: str | None,
        metadata: Mapping[str, str],
        request: NodeRequest | None,
        az: str | None,
        log: Log,
    ) -> None:
        super().__init__(cloud, label.name, metadata, log)
        self._hostname = hostname
        self._label = label
        self._image_name = image_name
        self._request = request
        self._az = az
        self._tags = vm_tags(label, metadata, request, log)
        #: Where to try it, the present one first. One thread at a time works on it.
        self._places: list[VmPlace] = []
        #: Address of the operation, if Azure told.
        self._operation: str | None = None
        #: How often something else was in the way.
        self._busy = 0
        #: Asks why the VM failed.
        self._why: Future[Exception | None] | None = None

    # -- making it --

    def create(self, key: CreationKey) -> str:
        # Azure keeps the name of a network interface for 180 s after a failure, and may still show the VM of before.
        name = key.name(self._hostname)
        if not self._places:
            self._places = self.cloud.places.to_try(places_of(self._label), self._request, self._az)
        while True:
            try:
                return self._create_at(self._places[0], name)
            except CloudNoCapacity as error:
                if not self._another_place(error):
                    raise

    def _another_place(self, error: Exception) -> bool:
        """The present place has no capacity. Is there another one?"""
        self.cloud.places.no_room_for(self._places[0], self._request)
        if len(self._places) == 1:
            return False
        self.log.info("No capacity for %s, trying %s: %s", self._places[0], self._places[1], error)
        del self._places[0]
        return True

    def _create_at(self, place: VmPlace, name: str) -> str:
        facts, config = self.cloud.facts, self.cloud.config
        with nothing_sent():
            image = facts.image_reference(self._label, self._image_name)
            subnet = facts.subnet_id()
        body = vm_body(
            name, self._hostname, config.name, config.location, self._label, place, image, subnet, self._tags
        )
        try:
            self._operation = self.cloud.client.create_vm(name, body, self._permit_at(place))
        except CloudRefused as error:
            if error.status != _EXISTS:
                raise
            # Of an order of ours that was not answered, or of somebody else.
            found = self.cloud.client.vm(name)
            if not is_of(found.metadata, self.metadata):
                raise
            self.log.info("VM %s was made by an order that was not answered", name)
        return name.lower()

    def _permit_at(self, place: VmPlace) -> Callable[[], None]:
        def permit() -> None:
            self.permit()
            # Where another launch found no capacity meanwhile, if there is another place.
            if len(self._places) > 1 and self.cloud.places.rests(place):
                raise CloudNoCapacity(
                    f"{self.where}: there was no capacity for another launch", code="AllocationFailed"
                )

        return permit

    def put_off(self, error: Exception) -> float | None:
        if not isinstance(error, CloudBusy) or self._busy >= BUSY_TIMES:
            return None
        self._busy += 1
        pause = BUSY_PAUSE.pause(self._busy)
        self.waits_for = str(error)
        self.log.info("Something else is under way, tried again in %g s: %s", pause, error)
        return pause

    def refused(self, error: Exception) -> Exception:
        if isinstance(error, CloudRefused) and not isinstance(error, (CloudQuota, CloudNoCapacity)):
            # What it was to be made of may be gone, or another one now.
            self.cloud.facts.forget()
        return error

    def begin_anew(self, error: LaunchError) -> float | None:
        # What shows at once `create` has looked at.
        if not isinstance(error, CloudNoCapacityLater) or not self._another_place(error):
            return None
        self._operation = self._why = None
        return 0.0

    def discard(self, record_id: str) -> AzureDeletion:
        return AzureDeletion(self.cloud, record_id, self.log, self.clock)

    # -- waiting for it --

    def lets_go_on(self, record: VmRecord | None) -> bool:
        return record is None or record.status in (FAILED, DELETING) or self._is_up(record)

    def _is_up(self, record: VmRecord) -> bool:
        return record.status == SUCCEEDED and record.addresses != Addresses()

    def seen(self, record: VmRecord) -> Instance | bool:
        if record.status == FAILED:
            return self._failed(record)
        if record.status == DELETING:
            raise self.gone()
        if not self._is_up(record):
            return False
        if self._places:
            self.cloud.places.made(self._places[0], self._request)
        return AzureInstance(record, self.cloud.limits.use_of(record))

    def _failed(self, record: VmRecord) -> bool:
        """Ask why, then raise the answer."""
        head = f"{self.where}: VM {record.id} failed"
        if self._why is None:
            operation, client = self._operation, self.cloud.client
            self._why = self.submit(lambda: client.vm_failure(record.id, operation, head))
            self._why.add_done_callback(lambda _: self.wake())
        if not self._why.done():
            return False
        error = self._why.exception() or self._why.result()
        raise self._meaning(head, error) from error

    def _meaning(self, head: str, error: BaseException | None) -> Exception:
        """The error of a launch whose VM failed."""
        if isinstance(error, CloudQuota):
            return error
        if isinstance(error, CloudNoCapacity):
            return CloudNoCapacityLater(str(error))
        if error is None:
            return LaunchStatusException(f"{head}: Azure gives no reason")
        text = str(error)
        return LaunchStatusException(text if text.startswith(head) else f"{head}: {text}")

    def gone(self) -> Exception:
        if self._places and self._places[0].spot:
            return CloudNoCapacityLater(
                f"{self.where}: spot VM {self.record_id} was evicted by Azure, or somebody deleted it"
            )
        return super().gone()
