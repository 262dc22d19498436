# SPDX-License-Identifier: Apache-2.0
"""`AwsCreation`: the launch of one instance; `InstanceCreation`: that of the usual ones."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING

from nodepool.driver.aws.ended import ended
from nodepool.driver.aws.instance import AwsInstance, external_id
from nodepool.driver.aws.instances import AwsDeletion, AwsInstances
from nodepool.driver.aws.launch_batch import InstanceOrder
from nodepool.driver.aws.launch_spec import instance_tags, run_arguments
from nodepool.driver.aws.places import LaunchPlace
from nodepool.driver.aws.types import PENDING, RUNNING, SHUTTING_DOWN, TERMINATED, AwsImage, AwsRecord
from nodepool.driver.framework.cloud_errors import CloudNoCapacity, CloudNoCapacityLater, CloudQuota, CloudRefused
from nodepool.driver.statemachine import CreationKey, CreationMachine, Instance
from nodepool.exceptions import LaunchError
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
