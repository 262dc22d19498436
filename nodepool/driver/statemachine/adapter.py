# SPDX-License-Identifier: Apache-2.0
"""All that the framework knows of a cloud: `Adapter`, which a driver implements (reference/driver).

Then `ResourceKinds`, `CloudAdapter`, which asks an `InstanceCloud`, and `PlacedCreation`: the launch of an instance for
which there is a choice of places, such as zones and types. Last the two signatures of `Adapter.getCreateStateMachine`.
"""

from __future__ import annotations

import inspect
import logging
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Generic, TypeVar

from nodepool.clock import monotonic
from nodepool.driver import gateway
from nodepool.driver.config import LabelSettings, ProviderConfig
from nodepool.driver.framework.cloud_errors import CheckResult, CloudNoCapacity, CloudQuota, CloudRefused
from nodepool.driver.framework.fact import Repeats
from nodepool.driver.framework.quota_support import P
from nodepool.driver.framework.uploads import ListedImage
from nodepool.driver.statemachine.instance import (
    PROVIDER_KEY,
    CloudResource,
    Creation,
    Instance,
    InstanceCloud,
    Log,
    Resource,
    StateMachine,
)
from nodepool.driver.statemachine.inventory import R
from nodepool.driver.statemachine.machines import CreationMachine, DeletionMachine, Order
from nodepool.exceptions import CapacityException, LaunchError, RuntimeConfigurationException
from nodepool.model.node import QuotaInformation

#: How old a list of instances may be that `Adapter.listResources` uses. Less than the time between two looks for leaks:
#: what is seen in both is seen in two lists.
SWEEP_LIST_SECONDS: Final = 5.0


class Adapter:
    """One configured cloud.

    The framework calls it from several threads, never while holding a lock, and outlives every exception. What is not
    overridden and has no default raises NotImplementedError. A driver that can tell that its cloud does not answer
    raises `nodepool.exceptions.CloudUnavailableException`: when that goes on, the circuit breaker opens.

    :param provider_config: the `ProviderConfig` of the driver.
    """

    #: How many calls of `StateMachine.advance` may run at once. 1 = all in turn, in one thread, as in 11.0.0. More for
    #: machines that are safe in several threads: a call that takes long then holds up fewer of the others.
    advance_threads: ClassVar[int] = 1
    #: Does the driver count instances itself that lists show as ended (reference/metrics 9)?
    counts_ends: ClassVar[bool] = False
    #: What its machines share; the framework uses its threads as well. None = it is not built on that.
    instance_cloud: InstanceCloud[Any] | None = None

    def __init__(self, provider_config: ProviderConfig) -> None:
        pass

    def getCreateStateMachine(self, *args: Any, **kwargs: Any) -> StateMachine:
        """Make the machine that launches one instance. Should not block.

        Two signatures are known; the names of the parameters decide which one is used:
        ``(hostname, label, image_external_id, metadata, log)`` and
        ``(hostname, label, image_external_id, metadata, request, az, log)``.

        * ``hostname``: at most 15 characters;
        * ``label``: label object of the pool, see `nodepool.driver.config.LabelSettings`;
        * ``image_external_id``: of the newest upload of ``label.diskimage``; None = use ``label.cloud_image``;
        * ``metadata``: dict of texts; must be stored on the instance and on all that is made with it;
        * ``request``: the `NodeRequest` that causes the launch; ``az``: availability zone to use, or None;
        * ``log``: logger for what concerns this node.
        """
        raise NotImplementedError

    def getDeleteStateMachine(self, external_id: Any, log: Log) -> StateMachine:
        """Make the machine that deletes one instance completely. Should not block.

        An id that does not exist (any more) is not an error: the machine completes, or raises `NotFound`.
        """
        raise NotImplementedError

    def listInstances(self) -> Iterable[Instance]:
        """All visible instances, also those of others (for quota). May block.

        What it shows must not be older than the call, but for `InstanceCloud.lag_seconds`: it is asked for instances
        whose creation gave no answer.
        """
        raise NotImplementedError

    def unansweredCreations(self) -> Iterable[Creation]:
        """Creations that may have made an instance which no list has shown yet. They count against the limits.

        `InstanceCloud.unanswered` knows them. Must not block. Released Nodepool does not call it. Default: none.
        """
        return ()

    def listResources(self) -> Iterable[Resource]:
        """All visible things that could be left over. Called every 40 s; may block.

        `listInstances` is called right before it: instances may be taken from that list, see `SWEEP_LIST_SECONDS`.
        """
        raise NotImplementedError

    def suspectsLeaks(self) -> bool:
        """Would another `listResources`, some seconds after the last one, find or remove something more?

        For what carries no metadata, so that the adapter must see it twice by itself. Must not block. Released Nodepool
        does not call it.
        """
        return False

    def idInAdvance(self, hostname: str, label: Any, metadata: dict[str, str]) -> Any:
        """``external_id`` that the first instance of a node will have, where it is a name that follows from these.

        It is stored with the lock of the node, before there is a machine. Only for machines that say the id of each
        instance before they make it (`StateMachine.announced`): whoever finds the node after a crash deletes this one,
        and looks for no other. Must not block. Released Nodepool does not call it. Default: None, the machine says it.

        :param hostname: as given to `getCreateStateMachine`; ``label`` and ``metadata``, too.
        """
        return None

    def whyLost(self, external_id: Any) -> tuple[str, str] | None:
        """Why the instance of a node that is ready or in use is not listed any more: the cloud's code, and a text.

        Must not block. Released Nodepool does not call it. Default: None, that is not known.
        """
        return None

    def isGone(self, external_id: Any) -> bool | None:
        """Ask the cloud for one instance that its lists do not show: is there none? May block.

        Only the cloud's own word that there is none counts (404); an error is raised. Released Nodepool does not call
        it. Default: what the `InstanceCloud` says; without one None, the cloud cannot be asked for one instance.
        """
        return None if self.instance_cloud is None else self.instance_cloud.is_gone(external_id)

    def deleteResource(self, resource: Resource) -> None:
        """Delete one leaked thing of `listResources`; may block."""
        raise NotImplementedError

    def getQuotaLimits(self) -> QuotaInformation:
        """The limits of the whole cloud project. May block. Default: none."""
        return QuotaInformation(default=math.inf)

    def getQuotaForLabel(self, label: LabelSettings) -> QuotaInformation:
        """What one node of a label uses. May block. Default: one instance.

        :raises RuntimeConfigurationException: the label can never work.
        """
        return QuotaInformation(instances=1)

    def getAZs(self) -> Sequence[str | None]:
        """Availability zones; one is picked at random for each request. May block. Default: no zones."""
        return [None]

    def labelReady(self, label: LabelSettings) -> bool:
        """Is the cloud image of a label there? Not asked for labels with a diskimage: the framework knows uploads."""
        return True

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
        """Upload an image; blocks until the cloud can use it.

        :param provider_image: image object of the provider's ``diskimages``.
        :param filename: of the image file.
        :param metadata: must be stored with the image, with the properties of ``provider_image``, over which its keys
            ``nodepool_`` win.
        :return: external id of the image.
        """
        raise NotImplementedError

    def deleteImage(self, external_id: str) -> None:
        """Delete an uploaded image; blocks. One that is gone already is no error."""
        raise NotImplementedError

    def listImages(self) -> Iterable[ListedImage]:
        """Images in the cloud with metadata of ours, uploads that are not complete included; may block.

        By their ids of build and upload the builder finds what an abandoned upload left (R-4). Released Nodepool does
        not call it. Without it such images are looked for in `listResources`.
        """
        raise NotImplementedError

    def getConsoleLog(self, label: LabelSettings, external_id: Any) -> str | None:
        """What an instance wrote to its console; may block. None = nothing."""
        raise NotImplementedError

    def notifyNodescanFailure(self, label: LabelSettings, external_id: Any) -> None:
        """The connection check of an instance failed. Must not block for long."""

    def preflight(self) -> Iterable[CheckResult]:
        """Look whether the cloud has what the configuration names, see `Provider.preflight`; may block.

        Must change nothing. Uploads of the images of labels are looked at by the framework. Released Nodepool does not
        call it.
        """
        return ()

    def stop(self) -> None:
        """Release what is held; nothing is called afterwards."""


# `ResourceKinds`: what can be left over in a cloud, kind by kind (rules D).
#
# Each kind says how its things are listed. Whose they are, and whether they are still wanted, the framework finds out:
# it deletes what it has seen twice without a node or an upload. So a kind that cannot be listed in one sweep is not
# taken for deleted: what it has left is only deleted later.

log = logging.getLogger("nodepool.driver.statemachine.resources")

#: What cannot be listed is told so often.
_TOLD_SECONDS: Final = 3600.0

T = TypeVar("T", bound=Resource)


@dataclass(frozen=True)
class ResourceKind(Generic[T]):
    """Things of one kind.

    :param name: for the log; as a rule the ``type`` of the resources.
    :param found: all that may be ours; blocks, and raises what the client raises.
    :param delete: one of them; blocks. Raises NotFound and what the client raises.
    :param idle_seconds: until the next list after one that showed nothing of the provider; 0 = in the next sweep. For
        what the configuration has no use for, but an earlier one may have left.
    :param vital: without its list there is no sweep, such as that of the instances; else the other kinds are swept all
        the same.
    :param types: further types of its resources.
    """

    name: str
    found: Callable[[], Iterable[T]]
    delete: Callable[[T], object]
    idle_seconds: float = 0.0
    vital: bool = False
    types: tuple[str, ...] = ()


class ResourceKinds(Generic[T]):
    """The kinds of one provider. Called by one thread at a time; blocks.

    :param provider: its name, for the log.
    :param kinds: in the order in which things are deleted: what uses others comes before them.
    """

    def __init__(self, provider: str, kinds: Iterable[ResourceKind[T]], clock: Callable[[], float] = monotonic) -> None:
        self._provider = provider
        self._kinds = tuple(kinds)
        self._clock = clock
        self._due: dict[str, float] = {}
        self._repeats = Repeats(_TOLD_SECONDS)

    def all(self) -> Iterator[T]:
        """Everything that may be ours. Trouble with one kind does not hide the others, unless the kind is vital."""
        for kind in self._kinds:
            if self._due.get(kind.name, float("-inf")) <= self._clock():
                yield from self._list(kind)

    def delete(self, resource: T) -> None:
        """Delete a resource of `all`; as its kind says it. Raises LookupError."""
        kind = next((kind for kind in self._kinds if resource.type in (kind.name, *kind.types)), None)
        if kind is None:
            raise LookupError(f"Provider {self._provider}: resources of type {resource.type} are of no known kind")
        kind.delete(resource)

    def _list(self, kind: ResourceKind[T]) -> list[T]:
        try:
            found = list(kind.found())
        except (LaunchError, RuntimeConfigurationException) as error:
            if kind.vital:
                raise
            if self._repeats.worth_saying(kind.name):
                log.warning("Provider %s: resources of kind %s cannot be listed: %s", self._provider, kind.name, error)
            return []
        self._repeats.over(kind.name)
        # What is there must be seen in two sweeps in a row.
        ours = any(resource.metadata.get(PROVIDER_KEY) == self._provider for resource in found)
        self._due[kind.name] = self._clock() + (0.0 if ours else kind.idle_seconds)
        return found


# What a driver derives from whose cloud is an `InstanceCloud`.


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


class CloudImages:
    """Uploaded images of one provider. All methods block. This one stands for a cloud that takes none."""

    def upload(self, file: ImageFile) -> str:
        """See `Adapter.uploadImage`."""
        # As `Adapter`: how a driver says that its cloud takes no images.
        raise NotImplementedError

    def delete(self, image_id: str) -> None:
        """See `Adapter.deleteImage`."""
        raise NotImplementedError

    def listed(self) -> Iterable[ListedImage]:
        """See `Adapter.listImages`."""
        raise NotImplementedError


class CloudAdapter(Adapter):
    """The constructor of a driver makes the cloud, and calls `use`. It must not call the cloud.

    Beside what stands here a driver says what labels need and what the limits are.
    """

    # Its machines share nothing but what is safe in several threads.
    advance_threads = 8
    #: Launches instances.
    creation_class: ClassVar[type[CreationMachine[Any]]]
    #: What may be left over, also images.
    resources: ResourceKinds[Any]
    #: What is done with images.
    images: CloudImages = CloudImages()

    def use(self, cloud: InstanceCloud[Any]) -> None:
        self.instance_cloud = cloud

    def stop(self) -> None:
        self._cloud.stop()

    @property
    def _cloud(self) -> InstanceCloud[Any]:
        assert self.instance_cloud is not None
        return self.instance_cloud

    def getCreateStateMachine(self, *order: Any, **named: Any) -> CreationMachine[Any]:
        """Takes the arguments of an `Order`."""
        return self.creation_class.of(self._cloud, Order(*order, **named))

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

    def instance_kind(self) -> ResourceKind[CloudResource]:
        """The first row of `resources`: instances, as the framework has just listed them."""
        return ResourceKind(
            "instance", self._found_instances, lambda found: self._cloud.delete_instance(found.id), vital=True
        )

    def _found_instances(self) -> Iterator[CloudResource]:
        for record in self._cloud.inventory.all(SWEEP_LIST_SECONDS):
            yield CloudResource(record.metadata, "instance", record.id)

    def upload(self, file: ImageFile) -> str:
        """See `Adapter.uploadImage`."""
        return self.images.upload(file)

    def deleteImage(self, external_id: str) -> None:
        self.images.delete(external_id)

    def listImages(self) -> Iterable[ListedImage]:
        return self.images.listed()

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


# The two signatures of `Adapter.getCreateStateMachine` (reference/driver 14).

#: Parameters of the longest of them.
PARAMETERS: Final = ("hostname", "label", "image_external_id", "metadata", "request", "az", "log")


def create_machine_of(provider_name: str, adapter: Adapter) -> Callable[..., StateMachine]:
    """A function of `PARAMETERS` that calls an adapter, whichever of the signatures it has."""
    signature = adapter.getCreateStateMachine
    left_out: set[str] = set() if wants_request(signature) else {"request", "az"}
    if list(inspect.signature(signature).parameters) == ["hostname", "label", "metadata", "log"]:
        # The example of 11.0.0; who copied it has no uploaded images.
        left_out.add("image_external_id")
    taken = [position for position, name in enumerate(PARAMETERS) if name not in left_out]

    def make(*arguments: Any) -> StateMachine:
        given = (arguments[position] for position in taken)
        machine: StateMachine = gateway.get_create_state_machine(provider_name, adapter, *given)
        return machine

    return make


def wants_request(make: Callable[..., Any]) -> bool:
    """Does it take ``request`` and ``az`` before ``log``?"""
    parameters = list(inspect.signature(make).parameters.values())
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if {"request", "az"} & {p.name for p in positional}:
        return True
    return len(positional) >= 7 or any(p.kind is p.VAR_POSITIONAL for p in parameters)
