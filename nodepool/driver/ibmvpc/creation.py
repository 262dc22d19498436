# SPDX-License-Identifier: Apache-2.0
"""`IbmCreation`: the launch of one instance, with its floating IP."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Final

from nodepool.driver.framework.cloud_errors import (
    CloudNoCapacity,
    CloudNoCapacityLater,
    CloudQuota,
    CloudRefused,
    nothing_sent,
)
from nodepool.driver.ibmvpc.errors import CAPACITY, PREEMPTED, busy, exists, meaning, told
from nodepool.driver.ibmvpc.facts import IbmPlace, instance_body, places_of
from nodepool.driver.ibmvpc.floating import ATTEMPTS, Claim
from nodepool.driver.ibmvpc.machines import IbmDeletion, IbmInstance, IbmMachines
from nodepool.driver.ibmvpc.types import (
    DELETING,
    FAILED,
    RUNNING,
    STOPPED,
    IbmFloatingIp,
    IbmRecord,
    group_of_pool,
    metadata_of_tags,
)
from nodepool.driver.statemachine import CreationKey, CreationMachine, Instance
from nodepool.driver.statemachine.instance import foreign, is_of
from nodepool.exceptions import LaunchError, LaunchStatusException

if TYPE_CHECKING:
    from nodepool.driver.ibmvpc.config import IbmLabel
    from nodepool.driver.statemachine.adapter import Log
    from nodepool.model.request import NodeRequest

#: So long after a refusal a floating IP is bound again to an instance that is not ready for it.
BUSY_SECONDS: Final = 3.0


class IbmCreation(CreationMachine[IbmRecord]):
    """Makes an instance and waits until it can be reached. A creation without an answer is sent again: its name is its
    key.

    :param image_id: of the upload; None = the label's cloud image.
    """

    idempotent = True

    cloud: IbmMachines

    def __init__(
        self,
        cloud: IbmMachines,
        hostname: str,
        label: IbmLabel,
        image_id: str | None,
        metadata: Mapping[str, str],
        request: NodeRequest | None,
        az: str | None,
        log: Log,
    ) -> None:
        super().__init__(cloud, label.name, metadata, log)
        self._hostname = hostname
        self._label = label
        self._image_id = image_id
        self._request = request
        self._az = az
        #: Where to try it, the present one first. One thread at a time works on it.
        self._places: list[IbmPlace] = []
        #: What is done about the floating IP, and the outcome.
        self._work: Future[IbmFloatingIp | Claim | None] | None = None
        self._floating: IbmFloatingIp | None = None
        self._claim: Claim | None = None
        self._claims_lost = 0
        self._bind_at = float("-inf")

    def id_in_advance(self) -> str:
        return self.key().name(self._hostname)

    # -- making it --

    def create(self, key: CreationKey) -> str:
        name = key.name(self._hostname)
        if not self._places:
            with nothing_sent():
                subnets = self.cloud.facts.subnets(self._label.pool)
            self._places = self.cloud.places.to_try(places_of(self._label, subnets), self._request, self._az)
        while True:
            if (shortage := self._shortage()) is not None and not self._another_zone(shortage):
                raise shortage
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

    def _shortage(self) -> CloudQuota | None:
        """Why the instance would get no floating IP at the present place; None = it may, or needs none."""
        return self.cloud.floating.shortages.of(self._places[0].zone) if self._label.pool.public_ipv4 else None

    def _another_zone(self, error: Exception) -> bool:
        """The present zone has no more floating IPs. Is there another zone that may have some?"""
        short = self.cloud.floating.shortages.of
        others = [place for place in self._places if short(place.zone) is None]
        if not others:
            return False
        self.log.info("No floating IP for %s, trying %s: %s", self._places[0], others[0], error)
        self._places = others
        return True

    def _create_at(self, place: IbmPlace, name: str) -> str:
        with nothing_sent():
            ids = self.cloud.facts.launch_ids(self._label, self._image_id)
        body = instance_body(name, self._label, place, ids, self.metadata)
        try:
            self.cloud.made(self.cloud.client.create_instance(body, self._permit_at(place)))
        except CloudRefused as error:
            if not exists(error):
                raise
            # Of an order of ours that was not answered, or of somebody else.
            found = self.cloud.client.instance_named(name)
            if found is None or not is_of(found.metadata, self.metadata) or self._is_foreign(found.instance_id):
                raise
            self.log.info("Instance %s was made by an order that was not answered", name)
        return name

    def _is_foreign(self, instance_id: str) -> bool:
        """Does another installation have an instance? Only the tags of its boot volume say so (D-10)."""
        return any(
            foreign(metadata_of_tags(list(volume.tags), self.cloud.provider, volume.group)) is not None
            for volume in self.cloud.client.volumes()
            if instance_id in volume.instance_ids
        )

    def _permit_at(self, place: IbmPlace) -> Callable[[], None]:
        def permit() -> None:
            self.permit()
            # Where another launch found no capacity meanwhile, if there is another place.
            if len(self._places) > 1 and self.cloud.places.rests(place):
                text = f"{self.where}: there was no capacity for another launch"
                raise CloudNoCapacity(text, code="cannot_start_capacity")

        return permit

    def refused(self, error: Exception) -> Exception:
        if isinstance(error, CloudRefused) and not isinstance(error, (CloudQuota, CloudNoCapacity)):
            # What it was to be made of may be gone, or another one now.
            self.cloud.facts.forget()
        return error

    def begin_anew(self, error: LaunchError) -> float | None:
        if not self._places:
            return None
        # What shows at once `create` has looked at.
        if isinstance(error, CloudQuota):
            found = self._shortage() is not None and self._another_zone(error)
        else:
            found = isinstance(error, (CloudNoCapacity, CloudNoCapacityLater)) and self._another_place(error)
        if not found:
            return None
        self._work = self._floating = self._claim = None
        return 0.0

    def discard(self, record_id: str) -> IbmDeletion:
        return IbmDeletion(self.cloud, record_id, self.log, self.clock)

    # -- waiting for it --

    def lets_go_on(self, record: IbmRecord | None) -> bool:
        if record is None or record.status in (RUNNING, FAILED, DELETING, *STOPPED):
            return True
        return self._label.pool.public_ipv4 and self._work is None and bool(record.interface_id)

    def seen(self, record: IbmRecord) -> Instance | bool:
        if record.status == DELETING:
            raise self.gone()
        if record.status == FAILED or record.status in STOPPED:
            raise self._ended(record)
        if self._label.pool.public_ipv4 and not self._has_address(record):
            return False
        if record.status != RUNNING:
            return False
        if self._places:
            self.cloud.places.made(self._places[0], self._request)
        address = None if self._floating is None else self._floating.address
        return IbmInstance(record, self.cloud.config.region, address)

    def _ended(self, record: IbmRecord) -> LaunchError:
        """The error of a launch whose instance will not run."""
        text = f"{self.where}: instance {record.id} is {record.status}"
        error = meaning(text, list(record.reasons)) if record.reasons else None
        codes = {reason.code for reason in record.reasons}
        if isinstance(error, CloudQuota):
            return error
        if codes & CAPACITY or PREEMPTED in codes:
            return CloudNoCapacityLater(str(error))
        return LaunchStatusException(f"{text}: {told(record.reasons) or 'IBM gives no reason'}")

    # -- its floating IP --

    def _has_address(self, record: IbmRecord) -> bool:
        """Is a floating IP bound to it that nobody else has? Does not block."""
        if self._work is not None:
            if not self._work.done():
                return False
            work, self._work = self._work, None
            self._take_outcome(work)
        if self._floating is not None:
            return True
        claim = self._claim
        if claim is not None:
            if self.reached(claim.ready_at):
                self._begin(lambda: self._take(claim, record))
        elif record.interface_id and self.reached(self._bind_at):
            self._begin(lambda: self._bind(record))
        return False

    def _begin(self, work: Callable[[], IbmFloatingIp | Claim | None]) -> None:
        self._work = self.submit(work)
        self._work.add_done_callback(lambda _: self.wake())

    def _bind(self, record: IbmRecord) -> IbmFloatingIp | Claim:
        group = self.cloud.facts.group_id(group_of_pool(self.cloud.provider, self._label.pool.name))
        return self.cloud.floating.bind(
            record.id, group, record.zone, record.interface_id, self.permit, may_claim=self._claims_lost < ATTEMPTS
        )

    def _take(self, claim: Claim, record: IbmRecord) -> IbmFloatingIp | None:
        return self.cloud.floating.take(claim, record.id, record.interface_id, self.permit)

    def _take_outcome(self, work: Future[IbmFloatingIp | Claim | None]) -> None:
        claim, self._claim = self._claim, None
        try:
            outcome = work.result()
        except CloudRefused as error:
            if not busy(error):
                raise
            self.log.debug("The floating IP is bound later: %s", error)
            self._bind_at = self.clock() + BUSY_SECONDS
            return
        if isinstance(outcome, Claim):
            self._claim = outcome
        elif outcome is not None:
            self._floating = outcome
        elif claim is not None:
            self._claims_lost += 1
            self.log.info("Another launcher took floating IP %s, another one is bound", claim.floating.address)
