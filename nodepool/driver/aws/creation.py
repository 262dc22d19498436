# SPDX-License-Identifier: Apache-2.0
"""`AwsCreation`: the launch of one instance; `InstanceCreation`: that of the usual ones."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, ClassVar, Final

from nodepool.driver.aws.facts import LaunchPlace
from nodepool.driver.aws.instances import AwsDeletion, AwsInstance, AwsInstances, ended, external_id
from nodepool.driver.aws.launch_calls import (
    AVAILABLE,
    FAILED,
    AwsHost,
    fleet_arguments,
    instance_tags,
    run_arguments,
    with_tags,
)
from nodepool.driver.aws.launches import InstanceOrder, token_of
from nodepool.driver.aws.types import PENDING, RUNNING, SHUTTING_DOWN, TERMINATED, AwsImage, AwsRecord
from nodepool.driver.framework.cloud_errors import CloudNoCapacity, CloudNoCapacityLater, CloudQuota, CloudRefused
from nodepool.driver.statemachine import CreationKey, CreationMachine, Instance
from nodepool.driver.statemachine.machines import REPEAT, REPEATS, Step, cloud_is_away
from nodepool.exceptions import CloudUnavailableException, LaunchError, LaunchStatusException
from nodepool.guard import Guard, settle

if TYPE_CHECKING:
    from nodepool.driver.aws.config import AwsLabel
    from nodepool.driver.statemachine.adapter import Log
    from nodepool.model.request import NodeRequest


class AwsCreation(CreationMachine[AwsRecord]):
    """Has an instance made and waits until it runs. AWS knows a creation again by its client token.

    :param image_id: of the upload; None = the label's cloud image.
    :param az: the zone of a node that the request has already.
    """

    idempotent = True

    cloud: AwsInstances

    def __init__(
        self,
        cloud: AwsInstances,
        hostname: str,
        label: AwsLabel,
        image_id: str | None,
        metadata: Mapping[str, str],
        request: NodeRequest | None,
        az: str | None,
        log: Log,
    ) -> None:
        super().__init__(cloud, label.name, metadata, log)
        self._label = label
        self._request = request
        self._az = az
        self._image_id = image_id
        # Once: with other values than before AWS would not know it again.
        self._tags = instance_tags(hostname, label, metadata, request, log)
        # One thread at a time works on it.
        self._places: list[LaunchPlace] = []

    def places(self) -> list[LaunchPlace]:
        """Where to try it, the present place first; what has no room is removed. May block."""
        if not self._places:
            self._places = self.cloud.places.to_try(self._label, self._request, self._az)
        return self._places

    def image(self) -> AwsImage:
        """What it is made of; may block."""
        return self.cloud.facts.image(self._image_id or self.cloud.facts.cloud_image_id(self._label))

    def another_place(self, error: CloudNoCapacity) -> bool:
        """The present place has no room. Is there another one? May block."""
        self.cloud.places.no_room_for(self._places[0], self._request)
        if len(self._places) == 1:
            return False
        self.log.info("No capacity for %s, trying %s: %s", self._places[0], self._places[1], error)
        del self._places[0]
        return True

    def refused(self, error: Exception) -> Exception:
        if isinstance(error, CloudRefused) and not isinstance(error, (CloudQuota, CloudNoCapacity)):
            # It may be gone, or be another one now.
            self.cloud.facts.forget(self._label)
        return error

    def stored_id(self, record_id: str) -> dict[str, str]:
        return external_id(record_id)

    def lets_go_on(self, record: AwsRecord | None) -> bool:
        return record is None or record.status != PENDING

    def seen(self, record: AwsRecord) -> Instance | bool:
        if record.status in (SHUTTING_DOWN, TERMINATED):
            raise self._ended(record)
        if record.status != RUNNING:
            return False
        used = self.cloud.limits.use_of(record, label=self._label)
        return AwsInstance(record, self.cloud.config.region_name, used, self._label)

    def gone(self) -> Exception:
        record = self.cloud.terminated.get(self.record_id or "")
        return super().gone() if record is None else self._ended(record)

    def _ended(self, record: AwsRecord) -> Exception:
        error = ended(self.where, record)
        if isinstance(error, CloudNoCapacityLater) and self._places:
            self.cloud.places.no_room(self._places[0])
        return error

    def begin_anew(self, error: LaunchError) -> float | None:
        """In another place, if AWS ended the instance because there was no room for it. A step: it must not block."""
        return self.leave_place(error) if isinstance(error, CloudNoCapacityLater) else None

    def leave_place(self, error: LaunchError) -> float | None:
        """What was made at the present place came to nothing; None = there is no other place. Does not block."""
        if len(self._places) < 2:
            return None
        place = self._places.pop(0)
        self.log.info("No capacity for %s, trying %s: %s", place, self._places[0], error)
        # A provider that was stopped takes no more work.
        with contextlib.suppress(RuntimeError):
            self.submit(lambda: self.cloud.places.lost(place, self._request))
        return 0.0

    def discard(self, record_id: str) -> AwsDeletion:
        return AwsDeletion(self.cloud, external_id(record_id), self.log)


class InstanceCreation(AwsCreation):
    """With RunInstances; those that have to wait go together."""

    #: What was ordered at the present place; None = nothing yet.
    _order: InstanceOrder | None = None

    def begin_creation(self, key: CreationKey) -> Future[str]:
        made: Future[str] = Future()
        if self._order is None:
            self._begin_at_place(key, made)
        else:
            # There was no answer.
            self._wait_for(self.cloud.launches.again(self._order), key, made)
        return made

    def _begin_at_place(self, key: CreationKey, made: Future[str]) -> None:
        # What is to be made may have to be looked up first.
        order: Future[InstanceOrder] = self.submit(lambda: self._order_at_place(key), self.cloud.creators)

        def ordered(order: Future[InstanceOrder]) -> None:
            if order.cancelled() or order.exception() is not None:
                settle((made,), lambda: order.result().key.text)
            else:
                self._order = order.result()
                self._wait_for(self.cloud.launches.add(self._order), key, made)

        order.add_done_callback(ordered)

    def _order_at_place(self, key: CreationKey) -> InstanceOrder:
        """What to order at the first of the places; may block."""
        place, image = self.places()[0], self.image()
        arguments = run_arguments(self._label, place, image)
        return InstanceOrder(key, place, arguments, self._tags, self._permit_here, self.permit)

    def _permit_here(self) -> None:
        """As `permit`; where another launch found no room meanwhile it need not be tried if there is another place."""
        self.permit()
        if len(self._places) > 1 and self.cloud.places.rests(self._places[0]):
            raise CloudNoCapacity(
                f"{self.where}: there was no room for another launch", code="InsufficientInstanceCapacity"
            )

    def begin_anew(self, error: LaunchError) -> float | None:
        pause = super().begin_anew(error)
        if pause is not None:
            self._order = None
        return pause

    def _wait_for(self, answer: Future[str], key: CreationKey, made: Future[str]) -> None:
        def answered(answer: Future[str]) -> None:
            error = answer.exception()
            if error is None and self._places:
                # Whatever goes wrong with that, the launch hears of its instance.
                with Guard(self.log, "The zone of a node is not remembered"):
                    self.cloud.places.made(self._places[0], self._request)
            if isinstance(error, CloudNoCapacity) and self.another_place(error):
                self._order = None
                try:
                    self._begin_at_place(key, made)
                except RuntimeError:
                    # The provider was stopped.
                    made.set_exception(error)
                return
            settle((made,), answer.result)

        answer.add_done_callback(answered)


# `FleetCreation`: the launch of an instance of which AWS chooses the type (AW-8).

_NO_TEMPLATE: Final = "InvalidLaunchTemplateName.NotFoundException"


class FleetCreation(AwsCreation):
    """With CreateFleet."""

    def create(self, key: CreationKey) -> str:
        while True:
            try:
                return self._create_at_place(key)
            except CloudNoCapacity as error:
                if not self.another_place(error):
                    raise

    def _create_at_place(self, key: CreationKey) -> str:
        place, label = self.places()[0], self._label
        template = self.cloud.templates.name_for(label)
        token = token_of([key], place)
        arguments = fleet_arguments(label, self.image().id, template, self._tags, token, spot=place.spot)
        try:
            return self.cloud.fleets.create_fleet(arguments, self.permit)
        except CloudRefused as error:
            if error.code == _NO_TEMPLATE:
                # Somebody removed it: the next attempt makes it.
                self.cloud.templates.forget()
            raise


# `HostCreation`: the launch of an instance with a dedicated host of its own (AW-5, AW-6).
#
# ::
#
#     start -> allocating -> host -> (as other launches)
#       ^                               |
#       |                               v
#       +------ (released) <----- no room for the instance: another place is tried with a host of its own

#: Between two looks at a host that is being made ready.
LOOK_SECONDS: Final = 5.0
#: Looks without an answer in a row, after which the framework must know.
LOST_LOOKS: Final = 3


class HostCreation(AwsCreation):
    """With AllocateHosts, then RunInstances on the host. From the allocation on the node's record names the host."""

    ALLOCATING: ClassVar[str] = "allocating"
    HOST: ClassVar[str] = "host"

    _host_id: str | None = None
    _allocations = 0
    _lost_looks = 0
    _next_at = float("-inf")

    def steps(self) -> Mapping[str, Step]:
        return {
            **super().steps(),
            self.START: self._allocate,
            self.ALLOCATING: self._allocating,
            self.HOST: self._wait_for_host,
        }

    def _allocate(self) -> bool:
        self.call(self._allocated, self.cloud.creators)
        return self.go(self.ALLOCATING)

    def _allocated(self) -> str:
        """In a thread of the cloud. The token says which call it is: sent again, it allocates no second host."""
        key = self.key()
        while True:
            place = self.places()[0]
            try:
                return self.cloud.hosts.allocate(place, self._tags, token_of([key], place), self.permit)
            except CloudNoCapacity as error:
                if not self.another_place(error):
                    raise

    def _allocating(self) -> bool:
        if not self.calling:
            return self.reached(self._next_at) and self._allocate()
        if not self.answered:
            return False
        try:
            self._host_id = self.answer()
        except (CloudUnavailableException, OSError) as error:
            # One that was allocated all the same is found by its tags, when leaks are looked for.
            self._allocations += 1
            if self._allocations > REPEATS:
                raise
            self._next_at = self.clock() + REPEAT.pause(self._allocations)
            self.log.warning("The allocation of a host was not answered, it is sent again: %s", error)
            return self.reached(self._next_at)
        self.external_id = {"host": self._host_id}
        return self.go(self.HOST)

    def _wait_for_host(self) -> bool:
        """Look at the host until it can be used."""
        host_id = self._host_id
        assert host_id is not None
        if not self.calling:
            if self.reached(self._next_at):
                self.call(lambda: self.cloud.hosts.host(host_id))
            return False
        if not self.answered:
            return False
        self._next_at = self.clock() + LOOK_SECONDS
        self.reached(self._next_at)
        try:
            host: AwsHost = self.answer()
        except (LaunchError, OSError) as error:
            # One that was just allocated may not be known everywhere.
            self._lost_looks += 1
            if self._lost_looks >= LOST_LOOKS:
                raise
            self.log.debug("Host %s (%s): %s", host_id, "no answer" if cloud_is_away(error) else "unknown", error)
            return False
        self._lost_looks = 0
        if host.status in FAILED:
            raise LaunchStatusException(f"{self.where}: the dedicated host {host_id} is {host.status}")
        return host.status == AVAILABLE and self._start()

    def create(self, key: CreationKey) -> str:
        place = self.places()[0]
        arguments = run_arguments(self._label, place, self.image(), self._host_id)
        given = with_tags(arguments, self._tags, token_of([key], place))
        return self.cloud.client.run_instances(given, 1, self.permit)[0].id

    def refused(self, error: Exception) -> Exception:
        if isinstance(error, CloudNoCapacity):
            # The host is there, and AWS has no room on it.
            self.cloud.places.no_room(self._places[0])
        return super().refused(error)

    def begin_anew(self, error: LaunchError) -> float | None:
        """In another place, with another host, if there is no room for the instance. A step: it must not block."""
        pause = self.leave_place(error) if isinstance(error, CloudNoCapacity) else super().begin_anew(error)
        if pause is not None:
            self._host_id = None
            self._allocations = self._lost_looks = 0
            self._next_at = float("-inf")
        return pause

    def leftovers(self) -> AwsDeletion | None:
        """The instance, if there is one, and its host."""
        return AwsDeletion(self.cloud, self.external_id, self.log)

    def stored_id(self, record_id: str) -> dict[str, str]:
        return external_id(record_id, self._host_id)
