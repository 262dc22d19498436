# SPDX-License-Identifier: Apache-2.0
"""What a driver of a cloud derives from, beside its `InstanceCloud`.

First `CloudAdapter`: the `Adapter` that asks it. Then `PlacedCreation`: the launch of an instance for which there is a
choice of places, such as zones and types.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic

from nodepool.clock import monotonic
from nodepool.driver.framework.cloud_errors import CloudNoCapacity, CloudQuota, CloudRefused
from nodepool.driver.framework.quota_support import P
from nodepool.driver.statemachine.adapter import Adapter, Log
from nodepool.driver.statemachine.instance import Instance, Resource, ResourceKinds
from nodepool.driver.statemachine.instance_cloud import InstanceCloud
from nodepool.driver.statemachine.inventory import R
from nodepool.driver.statemachine.lost_creations import Creation
from nodepool.driver.statemachine.machines import CreationMachine, DeletionMachine, Order
from nodepool.exceptions import CapacityException, LaunchError

if TYPE_CHECKING:
    from nodepool.model.request import NodeRequest


@dataclass(frozen=True, eq=False)
class ImageFile:
    """A file to upload: the arguments of `Adapter.uploadImage`.

    :param image: image object of the provider's ``diskimages``.
    """

    image: Any
    name: str
    path: str
    format: str | None
    metadata: dict[str, str]
    md5: str | None
    sha256: str | None


class CloudAdapter(Adapter):
    """The constructor of a driver makes the cloud, and calls `use`. It must not call the cloud.

    Beside what stands here a driver says what labels need and what the limits are, and what it does with images.
    """

    # Its machines share nothing but what is safe in several threads.
    advance_threads = 8
    #: Launches instances.
    creation_class: ClassVar[type[CreationMachine[Any]]]
    #: What may be left over, also images.
    resources: ResourceKinds[Any]

    def use(self, cloud: InstanceCloud[Any]) -> None:
        """Its threads and its events are the framework's, too."""
        self.instance_cloud = cloud
        self.shared_threads = cloud.threads
        self.lag_seconds = cloud.lag_seconds
        cloud.on_room = lambda: self.on_room()
        cloud.on_lost = lambda *lost: self.on_lost(*lost)

    def stop(self) -> None:
        self._cloud.stop()

    @property
    def _cloud(self) -> InstanceCloud[Any]:
        assert self.instance_cloud is not None
        return self.instance_cloud

    def getCreateStateMachine(
        self,
        hostname: str,
        label: Any,
        image_external_id: Any,
        metadata: dict[str, str],
        request: NodeRequest | None,
        az: str | None,
        log: Log,
    ) -> CreationMachine[Any]:
        order = Order(hostname, label, image_external_id, metadata, request, az, log)
        return self.creation_class.of(self._cloud, order)

    def getDeleteStateMachine(self, external_id: Any, log: Log) -> DeletionMachine[Any]:
        return self.creation_class.deletion_class(self._cloud, external_id, log)

    def listInstances(self) -> list[Instance]:
        cloud = self._cloud
        records = cloud.inventory.all(max_age=0.0)
        cloud.learn(records)
        found = [cloud.instance(record) for record in records]
        for instance, record in zip(found, records, strict=True):
            instance.ends = cloud.why_ended(record)
        return found

    def unansweredCreations(self) -> Iterable[Creation]:
        return self._cloud.unanswered()

    def listResources(self) -> Iterable[Resource]:
        return self.resources.all()

    def upload(self, file: ImageFile) -> str:
        """See `Adapter.uploadImage`."""
        # As `Adapter`: how a driver says that its cloud takes no images.
        raise NotImplementedError

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
        return self.upload(
            ImageFile(provider_image, image_name, filename, image_format, dict(metadata or {}), md5, sha256)
        )

    def deleteResource(self, resource: Resource) -> None:
        self.resources.delete(resource)


class PlacedCreation(CreationMachine[R], Generic[R, P]):
    """Where the cloud has no capacity at one place it goes on with the next. ``cloud`` has ``places``.

    A place is what a driver may choose among, see `nodepool.driver.framework.quota_support`.
    """

    cloud: Any
    #: What is wrong with the place, and not with the order.
    elsewhere: ClassVar[tuple[type[LaunchError], ...]] = (CapacityException,)
    #: What the cloud calls a lack of capacity.
    no_capacity: ClassVar[str] = ""

    def __init__(self, cloud: InstanceCloud[R], order: Order, clock: Callable[[], float] = monotonic) -> None:
        super().__init__(cloud, order, clock)
        #: Where to try it, the present one first; empty = that was not asked for. One thread at a time works on it.
        self.places: list[P] = []

    # -- what the driver says --

    def all_places(self) -> Sequence[P]:
        """All that the label allows, at least one. May block."""
        # A driver that asks its cloud in another way overrides `find_places`.
        raise NotImplementedError

    def create_at(self, place: P, key: Any) -> str:
        """See `create`. Calls `permit_at`."""
        # A driver whose place is a part of the id, or that gathers creations, has `create` or `begin_creation` instead.
        raise NotImplementedError

    def another_place(self, error: LaunchError) -> bool:
        """The present place has no capacity. Is there another one? It is the present one then."""
        return bool(self.cloud.places.try_another(self.places, self.order.request, error, self.log))

    def moved(self) -> None:
        """The creation begins anew at another place: forget what came of it at the last one."""

    def forget(self) -> None:
        """The order was refused: what the instance was to be made of may not be there any more, or another one now."""

    # -- the framework calls --

    def find_places(self) -> list[P]:
        """Where to try it, in order. May block."""
        found: list[P] = self.cloud.places.to_try(self.all_places(), self.order.request, self.order.az)
        return found

    def place(self) -> P:
        """The present one. May block, the first time."""
        if not self.places:
            self.places = self.find_places()
        return self.places[0]

    def create(self, key: Any) -> str:
        while True:
            try:
                return self.create_at(self.place(), key)
            except self.elsewhere as error:
                if not isinstance(error, CloudRefused) or not self.another_place(error):
                    raise

    def permit_at(self, place: P) -> None:
        """As `permit`.

        :raises CloudNoCapacity: another launch found no capacity there meanwhile, and there is another place.
        """
        self.permit()
        if len(self.places) > 1 and self.cloud.places.rests(place):
            text = f"{self.where}: {place}: there was no capacity for another launch"
            raise CloudNoCapacity(text, code=self.no_capacity)

    def refused(self, error: Exception) -> Exception:
        if isinstance(error, CloudRefused) and not isinstance(error, (CloudQuota, CloudNoCapacity)):
            self.forget()
        return error

    def begin_anew(self, error: LaunchError) -> float | None:
        if not isinstance(error, self.elsewhere) or not self.places or not self.another_place(error):
            return None
        self.moved()
        return 0.0

    def settled(self) -> None:
        """The instance can be used: other nodes of the request go where it is."""
        if self.places:
            self.cloud.places.made(self.places[0], self.order.request)
