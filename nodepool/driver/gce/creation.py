# SPDX-License-Identifier: Apache-2.0
"""`GceCreation`: the launch of one instance."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from nodepool.driver.framework.cloud_errors import (
    CloudAway,
    CloudNoCapacity,
    CloudNoCapacityLater,
    CloudQuota,
    CloudRefused,
    nothing_sent,
)
from nodepool.driver.gce.errors import EXISTS, THROTTLED, UNSUPPORTED
from nodepool.driver.gce.facts import GcePlace, places_of
from nodepool.driver.gce.instances import GceDeletion, GceInstance, GceInstances, Insert
from nodepool.driver.gce.types import ENDING, RUNNING, GceRecord, labels_of, record_id, request_id
from nodepool.driver.statemachine import CreationKey, CreationMachine, Instance
from nodepool.driver.statemachine.instance import is_of
from nodepool.exceptions import CapacityException, LaunchError, LaunchStatusException
from nodepool.plan.retries import Backoff

if TYPE_CHECKING:
    from nodepool.driver.gce.config import GceLabel, GcePool
    from nodepool.driver.statemachine.adapter import Log
    from nodepool.model.request import NodeRequest

#: From a creation for which too many operations were under way to the next one.
CONCURRENT_PAUSE: Final = Backoff(2.0, 30.0)
#: What keeps a launch from this zone or machine type only.
_NOT_HERE: Final = "the zone does not have the machine type"


class GceCreation(CreationMachine[GceRecord]):
    """Makes an instance and waits until it can be reached.

    A creation without an answer is sent again with its request id. One that has no capacity, as its answer or later its
    operation says, is begun anew at the next place.

    :param image_name: of the upload; None = the label's cloud image.
    :param az: the zone of a node that the request has already.
    """

    idempotent = True

    cloud: GceInstances

    def __init__(
        self,
        cloud: GceInstances,
        hostname: str,
        label: GceLabel,
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
        #: Where to try it, the present one first.
        self._places: list[GcePlace] = []
        self._insert: Insert | None = None
        #: How often too many operations were under way.
        self._crowded = 0
        #: Was there an order at the present place, with or without an answer?
        self._ordered = False

    # -- making it --

    def id_in_advance(self) -> str:
        if not self._places:
            places, silent = places_of(self._label), self.cloud.client.silent_zones
            answering = [place for place in places if not silent.silent(place.zone)]
            self._places = self.cloud.places.to_try(answering or places, self._request, self._az)
        return record_id(self._places[0].zone, self.key().name(self._hostname))

    def stored_id(self, record_id: str) -> str:
        return self.cloud.stored_id(record_id)

    def create(self, key: CreationKey) -> str:
        place, name = self._places[0], key.name(self._hostname)
        self._check_answers(place)
        try:
            with nothing_sent():
                if self.cloud.facts.machine_type(place.zone, place.machine_type) is None:
                    # Not of this zone, so nothing is wrong with the label as long as there is another place.
                    raise CloudNoCapacity(f"{self.where}: {place}: {_NOT_HERE}", code="notFound")
                image = self.cloud.facts.image_link(self._label, self._image_name)
        except CloudAway:
            self._check_answers(place)
            raise
        body = instance_body(name, self._label, place, image, self.metadata)
        try:
            operation = self.cloud.client.insert(place.zone, body, request_id(key, place.zone), self._permit_at(place))
        except CloudRefused as error:
            if error.code not in EXISTS:
                raise
            # Of an order of ours that was not answered, or of somebody else.
            found = self.cloud.client.instance(place.zone, name)
            if not is_of(found.metadata, self.metadata):
                raise
            self.log.info("Instance %s was created by a call that was not answered", name)
        else:
            head = f"{self.where}: instance {name} failed"
            self._insert = self.cloud.operations.watch(operation, head, lambda: self.wake())
        return record_id(place.zone, name)

    def _check_answers(self, place: GcePlace) -> None:
        """:raises CloudNoCapacity: the zone does not answer, nothing was ordered there, and there is another place."""
        if len(self._places) > 1 and not self._ordered and self.cloud.client.silent_zones.silent(place.zone):
            raise CloudNoCapacity(f"{self.where}: {place}: the zone does not answer", code="UNREACHABLE")

    def _permit_at(self, place: GcePlace) -> Callable[[], None]:
        def permit() -> None:
            self.permit()
            # Where another launch found no capacity meanwhile, if there is another place.
            if len(self._places) > 1 and self.cloud.places.rests(place):
                raise CloudNoCapacity(
                    f"{self.where}: {place}: there was no capacity for another launch",
                    code="ZONE_RESOURCE_POOL_EXHAUSTED",
                )
            self._ordered = True

        return permit

    def refused(self, error: Exception) -> Exception:
        if isinstance(error, CloudRefused) and not isinstance(error, (CloudQuota, CloudNoCapacity)):
            # What it was to be made of may be gone, or another one now.
            self.cloud.facts.forget_images()
        return error

    def put_off(self, error: Exception) -> float | None:
        if not isinstance(error, CloudAway) or error.code not in THROTTLED:
            return None
        self._crowded += 1
        pause = CONCURRENT_PAUSE.pause(self._crowded)
        self.log.info("Too many calls or operations are under way, tried again in %g s: %s", pause, error)
        return pause

    def begin_anew(self, error: LaunchError) -> float | None:
        self._insert = None
        pause = self.put_off(error)
        if pause is not None:
            return pause
        if not isinstance(error, CapacityException):
            return None
        self.cloud.places.no_room_for(self._places[0], self._request)
        if len(self._places) == 1:
            return None
        self.log.info("No capacity for %s, trying %s: %s", self._places[0], self._places[1], error)
        del self._places[0]
        self._ordered = False
        return 0.0

    def discard(self, record_id: str) -> GceDeletion:
        return GceDeletion(self.cloud, record_id, self.log, self.clock)

    # -- waiting for it --

    def lets_go_on(self, record: GceRecord | None) -> bool:
        return record is None or record.status in ENDING or self._is_up(record)

    def _is_up(self, record: GceRecord) -> bool:
        addresses = bool(record.private_ipv4) and bool(record.public_ipv4 or not self._label.pool.public_ipv4)
        return record.status == RUNNING and addresses

    def seen(self, record: GceRecord) -> Instance | bool:
        if self._is_up(record):
            self._insert = None
            self.cloud.places.made(self._places[0], self._request)
            used = self.cloud.limits.use_of(record, self._label)
            return GceInstance(record, self.stored_id(record.id), used)
        self._raise_failure()
        if record.status in ENDING:
            raise self._ended(f"instance {record.name} is {record.status}")
        return False

    def unlisted(self) -> None:
        self._raise_failure()

    def _raise_failure(self) -> None:
        """What the operation says: the instance may still be there when it has failed, or not be there yet."""
        failure = None if self._insert is None else self._insert.failure
        if isinstance(failure, CloudNoCapacity):
            raise CloudNoCapacityLater(str(failure))
        if isinstance(failure, CloudRefused) and failure.code == UNSUPPORTED and self._places[0].spot:
            raise CloudNoCapacityLater(f"{failure}; Google took the spot instance away while it was created")
        if isinstance(failure, CloudAway) and failure.code not in THROTTLED:
            # Google has answered: this instance failed, and the cloud is not away.
            raise LaunchStatusException(str(failure))
        if failure is not None:
            raise failure

    def gone(self) -> Exception:
        return self._ended(f"instance {self.record_id} is gone")

    def _ended(self, text: str) -> Exception:
        """The error of a launch whose instance was taken away."""
        if self._places and self._places[0].spot:
            return CloudNoCapacityLater(
                f"{self.where}: spot {text}: it was preempted by Google, or somebody deleted it"
            )
        return LaunchStatusException(f"{self.where}: {text}: somebody stopped or deleted it")


# What an instance is to be like: the body of the insert (GC-2, GC-3). Pure.

#: Of the public address, as the Google Cloud console calls it.
ACCESS_NAME = "External NAT"


def instance_body(
    name: str, label: GceLabel, place: GcePlace, image: str, metadata: Mapping[str, str]
) -> dict[str, Any]:
    """The body.

    :param image: its link.
    :param metadata: says whose the instance is: labels of instance and disk, and metadata items as in 11.0.0.
    """
    zone, labels = f"zones/{place.zone}", labels_of(metadata)
    disk = {
        "boot": True,
        "autoDelete": True,
        "initializeParams": {
            "sourceImage": image,
            "diskType": f"{zone}/diskTypes/{label.volume_type}",
            "diskSizeGb": str(label.volume_size),
            "labels": labels,
        },
    }
    items = _items(label, metadata)
    body: dict[str, Any] = {
        "name": name,
        "machineType": f"{zone}/machineTypes/{place.machine_type}",
        "labels": labels,
        "disks": [disk],
        "networkInterfaces": [_interface(label.pool)],
        "serviceAccounts": [],
        "metadata": {"items": [{"key": key, "value": value} for key, value in items.items()]},
    }
    if label.service_account:
        body["serviceAccounts"] = [{"email": label.service_account, "scopes": list(label.scopes)}]
    if label.pool.network_tags:
        body["tags"] = {"items": list(label.pool.network_tags)}
    shielded = {
        "enableSecureBoot": label.secure_boot,
        "enableVtpm": label.vtpm,
        "enableIntegrityMonitoring": label.integrity_monitoring,
    }
    wanted = {option: value for option, value in shielded.items() if value is not None}
    if wanted:
        body["shieldedInstanceConfig"] = wanted
    if place.spot:
        body["scheduling"] = {
            "provisioningModel": "SPOT",
            "instanceTerminationAction": "DELETE",
            "automaticRestart": False,
            "onHostMaintenance": "TERMINATE",
        }
    return body


def _items(label: GceLabel, metadata: Mapping[str, str]) -> dict[str, str]:
    items = dict(label.metadata)
    image = label.diskimage or label.cloud_image
    if image is not None and image.ssh_key:
        items["ssh-keys"] = f"{image.username}:{image.ssh_key}"
    return {**items, **metadata}


def _interface(pool: GcePool) -> dict[str, Any]:
    interface: dict[str, Any] = {"network": network_path(pool.network)}
    if pool.subnetwork:
        interface["subnetwork"] = subnetwork_path(pool.subnetwork, pool.provider.region)
        if pool.network == "default" and "/" in pool.subnetwork:
            # It says the network, which may be one of another project.
            del interface["network"]
    if pool.public_ipv4:
        interface["accessConfigs"] = [{"type": "ONE_TO_ONE_NAT", "name": ACCESS_NAME}]
    return interface


def network_path(given: str) -> str:
    """A network of the project by its name, or any by its link."""
    return given if "/" in given else f"global/networks/{given}"


def subnetwork_path(given: str, region: str) -> str:
    """The same of a subnetwork."""
    return given if "/" in given else f"regions/{region}/subnetworks/{given}"
