# SPDX-License-Identifier: Apache-2.0
"""Instances of one IBM VPC provider.

First how they are listed and deleted, then those that stopped by themselves, then one instance, then its launch
(`IbmCreation`).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final

from nodepool.clock import monotonic
from nodepool.driver.framework.cloud_errors import (
    CloudNoCapacity,
    CloudNoCapacityLater,
    CloudNotFound,
    CloudQuota,
    CloudRefused,
    nothing_sent,
)
from nodepool.driver.framework.fact import ToldOnce
from nodepool.driver.framework.places import ZonePlaces
from nodepool.driver.ibmvpc.client import CALL_SECONDS, IbmVpc
from nodepool.driver.ibmvpc.errors import CAPACITY, PREEMPTED, busy, exists, meaning, told
from nodepool.driver.ibmvpc.facts import IbmPlace, instance_body, places_of, use_of
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
from nodepool.driver.statemachine import (
    CreationKey,
    CreationMachine,
    DeletionMachine,
    Instance,
    InstanceCloud,
    instance,
)
from nodepool.driver.statemachine.instance import POOL_KEY, foreign, is_of
from nodepool.exceptions import LaunchError, LaunchStatusException
from nodepool.metrics import reports

if TYPE_CHECKING:
    from nodepool.driver.ibmvpc.config import IbmLabel, IbmProviderConfig
    from nodepool.driver.ibmvpc.facts import IbmFacts
    from nodepool.driver.ibmvpc.floating import IbmFloatingIps
    from nodepool.driver.statemachine.adapter import Log
    from nodepool.model.quota import QuotaInformation
    from nodepool.model.request import NodeRequest

#: So many instances are remembered that were made here.
MANY: Final = 5000


class IbmMachines(InstanceCloud[IbmRecord]):
    """What launches and deletions of one provider share. The absence of an instance from lists proves that it is gone:
    to ask for one costs as much as a list.
    """

    # No lag of lists is documented.
    lag_seconds = 1.0
    # An instance takes some 20 s to boot, and 300 instances are three calls.
    shortest_list_pause = 1.0
    # An answer may take twice as long as each of its parts.
    call_seconds = 2 * CALL_SECONDS

    def __init__(
        self,
        config: IbmProviderConfig,
        client: IbmVpc,
        facts: IbmFacts,
        floating: IbmFloatingIps,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        super().__init__(config.name)
        self.clock = clock
        self.config = config
        self.client = client
        self.facts = facts
        self.floating = floating
        self.places: ZonePlaces[IbmPlace] = ZonePlaces()
        self._stopped = StoppedInstances(config.name)
        #: What IBM calls instances that were made here, by name: lists may not show them yet. ``_made_lock`` guards it.
        self._made: dict[str, str] = {}
        self._made_lock = threading.Lock()

    def list_instances(self, since: str | None) -> list[IbmRecord]:
        records = self.client.instances()
        self._stopped.seen(records)
        return records

    def delete_instance(self, record_id: str) -> None:
        """:param record_id: name of an instance of ours, or id of any other one."""
        record = self.inventory.get(record_id)
        with self._made_lock:
            instance_id = self._made.get(record_id) if record is None else record.instance_id
        if instance_id is None:
            record = self.client.instance_named(record_id)
            if record is None or record.id != record_id:
                # An instance of others may have the name.
                text = f"Provider {self.provider}: instance {record_id} is gone"
                raise CloudNotFound(text, code="not_found", status=404)
            instance_id = record.instance_id
        self.client.delete("instance", instance_id)

    def ask_for(self, record_id: str) -> IbmRecord | None:
        record = self.client.instance_named(record_id)
        # An instance of others may have the name.
        return record if record is not None and record.id == record_id else None

    def why_ended(self, record: IbmRecord) -> tuple[str, str] | None:
        taken = record.status in STOPPED and any(reason.code == PREEMPTED for reason in record.reasons)
        return (PREEMPTED, told(record.reasons)) if taken else None

    def made(self, record: IbmRecord) -> None:
        """An instance was made here. Any thread."""
        with self._made_lock:
            self._made[record.id] = record.instance_id
            if len(self._made) > MANY:
                del self._made[next(iter(self._made))]

    def why_lost(self, name: str) -> tuple[str, str]:
        """Why an instance is in no list any more that nobody here deleted: code and text. Does not block."""
        return "not_found", f"instance {name} is gone: somebody deleted it, or IBM did"

    def uses_floating_ips(self, record: IbmRecord | None) -> bool:
        """May an instance have one?

        :param record: as last seen; None = it was not.
        """
        pools = self.config.pools
        pool = None if record is None else pools.get(record.metadata.get(POOL_KEY, ""))
        return pool.public_ipv4 if pool is not None else any(one.public_ipv4 for one in pools.values())

    def close(self) -> None:
        self.client.calls.close()


class IbmDeletion(DeletionMachine[IbmRecord]):
    """Deletes an instance, waits until it is gone, and keeps or deletes its floating IP."""

    cloud: IbmMachines
    _may_have_address: bool | None = None

    def before(self, record: IbmRecord | None) -> Callable[[], Any] | None:
        if self._may_have_address is None:
            self._may_have_address = self.cloud.uses_floating_ips(record)
        return None

    def after(self) -> Callable[[], Any] | None:
        name, may_have = self.external_id, self._may_have_address
        if may_have is None:
            may_have = self.cloud.uses_floating_ips(None)
        if not name or not may_have:
            return None
        return lambda: self.cloud.floating.release(name)

    def begun(self, record: IbmRecord) -> bool:
        return record.status == DELETING

    def busy(self, error: LaunchError) -> bool:
        """Another operation on the instance is under way."""
        return busy(error)


# `StoppedInstances`: reports instances of ours that stopped by themselves, such as spot instances that IBM took.

log = logging.getLogger("nodepool.driver.ibmvpc.machines")


class StoppedInstances:
    """Tells of each once. Thread-safe, does not block.

    What the first list shows stopped before: it is not told.

    :param provider: its name.
    """

    def __init__(self, provider: str) -> None:
        self._provider = provider
        self._told = ToldOnce()

    def seen(self, records: Iterable[IbmRecord]) -> None:
        """A list of all instances."""
        stopped = {
            record.instance_id: record
            for record in records
            if record.status in STOPPED and instance.node_id_of(record.metadata, self._provider)
        }
        for instance_id in self._told.new(stopped):
            self._tell(stopped[instance_id])

    def _tell(self, record: IbmRecord) -> None:
        code = record.reasons[0].code if record.reasons else ""
        reports.report_instance_end(self._provider, code)
        log.warning(
            "Instance %s (%s) of node %s stopped: %s",
            record.id,
            "spot" if record.spot else "regular",
            instance.node_id_of(record.metadata, self._provider),
            told(record.reasons) or "IBM gives no reason",
        )


# `IbmInstance`: an instance as the framework sees it (IV-6).


class IbmInstance(Instance):
    """One instance.

    :param public_ipv4: address of its floating IP; None = it has none, or it is not known.
    :param ends: see `Instance`.
    """

    def __init__(
        self,
        record: IbmRecord,
        region: str,
        public_ipv4: str | None = None,
        ends: tuple[str, str] | None = None,
    ) -> None:
        super().__init__()
        self.ends = ends
        self.ready = record.status == RUNNING
        self.external_id = record.id
        self.metadata = dict(record.metadata)
        self.cloud = "IBM"
        self.region = region
        self.az = record.zone
        self.public_ipv4 = public_ipv4
        self.private_ipv4 = record.private_ipv4
        self.interface_ip = public_ipv4 or record.private_ipv4
        self._used = use_of(record)

    def getQuotaInformation(self) -> QuotaInformation:
        return self._used


# `IbmCreation`: the launch of one instance, with its floating IP.

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
        self._work: Future[IbmFloatingIp] | None = None
        self._floating: IbmFloatingIp | None = None
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
        return self.cloud.places.try_another(self._places, self._request, error, self.log)

    def _shortage(self) -> CloudQuota | None:
        """Why the instance would get no floating IP at the present place; None = it may, or needs none."""
        return self.cloud.floating.shortage(self._places[0].zone) if self._label.pool.public_ipv4 else None

    def _another_zone(self, error: Exception) -> bool:
        """The present zone has no more floating IPs. Is there another zone that may have some?"""
        others = [place for place in self._places if self.cloud.floating.shortage(place.zone) is None]
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
        self._work = self._floating = None
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
            try:
                self._floating = work.result()
            except CloudRefused as error:
                if not busy(error):
                    raise
                self.log.debug("The floating IP is bound later: %s", error)
                self._bind_at = self.clock() + BUSY_SECONDS
        if self._floating is None and record.interface_id and self.reached(self._bind_at):
            self._work = self.submit(lambda: self._bind(record))
            self._work.add_done_callback(lambda _: self.wake())
        return self._floating is not None

    def _bind(self, record: IbmRecord) -> IbmFloatingIp:
        group = self.cloud.facts.group_id(group_of_pool(self.cloud.provider, self._label.pool.name))
        return self.cloud.floating.bind(record.id, group, record.zone, record.interface_id, self.permit)
