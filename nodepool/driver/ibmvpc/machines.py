# SPDX-License-Identifier: Apache-2.0
"""Instances of one IBM VPC provider.

First how they are listed and deleted, then one instance, then its launch (`IbmCreation`).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any, Final

from nodepool.clock import monotonic
from nodepool.driver.framework.cloud_errors import (
    CloudNoCapacityLater,
    CloudNotFound,
    CloudQuota,
    CloudRefused,
    nothing_sent,
)
from nodepool.driver.framework.fact import ToldOnce
from nodepool.driver.framework.quota_support import ZonePlaces
from nodepool.driver.ibmvpc import types as t
from nodepool.driver.ibmvpc.client import CALL_SECONDS, IbmVpc
from nodepool.driver.ibmvpc.config import IbmPool, IbmProviderConfig
from nodepool.driver.ibmvpc.facts import IbmFacts, IbmPlace, places_of
from nodepool.driver.ibmvpc.floating import IbmFloatingIps
from nodepool.driver.ibmvpc.types import CAPACITY, PREEMPTED, busy, exists, meaning, texts_of
from nodepool.driver.statemachine import (
    CloudInstance,
    CreationKey,
    DeletionMachine,
    Instance,
    InstanceCloud,
    Order,
    PlacedCreation,
)
from nodepool.driver.statemachine.instance import POOL_KEY, foreign, is_of, node_id_of
from nodepool.exceptions import CapacityException, LaunchError, LaunchStatusException
from nodepool.metrics import reports
from nodepool.model.node import QuotaInformation

log = logging.getLogger("nodepool.driver.ibmvpc.machines")

#: So many instances are remembered that were made here.
MANY: Final = 5000


class IbmMachines(InstanceCloud[t.IbmRecord]):
    """What launches and deletions of one provider share. The absence of an instance from lists proves that it ended:
    to ask for one costs as much as a list.
    """

    resumes_launches = True
    # No lag of lists is documented.
    lag_seconds = 1.0
    # An instance takes some 20 s to boot, and 300 instances are three calls.
    shortest_list_pause = 1.0
    # An answer may take twice as long as each of its parts.
    call_seconds = 2 * CALL_SECONDS

    def __init__(self, config: IbmProviderConfig, client: IbmVpc, facts: IbmFacts, floating: IbmFloatingIps) -> None:
        super().__init__(config.name)
        self.config = config
        self.client = client
        self.facts = facts
        self.floating = floating
        self.places: ZonePlaces[IbmPlace] = ZonePlaces()
        self._stopped = ToldOnce()
        #: What IBM calls instances that were made here, by name: lists may not show them yet. ``_made_lock`` guards it.
        self._made: dict[str, str] = {}
        self._made_lock = threading.Lock()

    def list_instances(self, since: str | None) -> list[t.IbmRecord]:
        records = self.client.instances()
        self._report_stopped(records)
        return records

    def _report_stopped(self, records: Iterable[t.IbmRecord]) -> None:
        """Instances of ours that stopped by themselves, such as spot instances that IBM took, are reported once. What
        the first list shows stopped before.
        """
        stopped = {one.instance_id: one for one in records if one.status in t.STOPPED}
        ours = {key: node for key, one in stopped.items() if (node := node_id_of(one.metadata, self.provider))}
        for key in self._stopped.new(ours):
            record = stopped[key]
            reports.report_instance_end(self.provider, record.reasons[0].code if record.reasons else "")
            kind, why = "spot" if record.spot else "regular", texts_of(record.reasons) or "IBM gives no reason"
            log.warning("Instance %s (%s) of node %s stopped: %s", record.id, kind, ours[key], why)

    def delete_instance(self, record_id: str) -> None:
        """:param record_id: name of an instance of ours, or id of any other one."""
        record = self.inventory.get(record_id)
        with self._made_lock:
            instance_id = self._made.get(record_id) if record is None else record.instance_id
        if instance_id is None:
            record = self.ask_for(record_id)
            if record is None:
                text = f"Provider {self.provider}: instance {record_id} does not exist any more"
                raise CloudNotFound(text, code="not_found", status=404)
            instance_id = record.instance_id
        self.client.delete("instance", instance_id)

    def instance(self, record: t.IbmRecord, public_ipv4: str | None = None) -> CloudInstance:
        """See IV-6. :param public_ipv4: address of its floating IP; None = it has none, or it is not known."""
        return CloudInstance(
            record,
            QuotaInformation(instances=1, cores=record.cores, ram=record.ram_gib),
            ready=record.status == t.RUNNING,
            cloud="IBM",
            region=self.config.region,
            az=record.zone,
            public_ipv4=public_ipv4,
            private_ipv4=record.private_ipv4,
        )

    def ask_for(self, record_id: str) -> t.IbmRecord | None:
        record = self.client.instance_named(record_id)
        # An instance of others may have the name.
        return record if record is not None and record.id == record_id else None

    def why_ended(self, record: t.IbmRecord) -> tuple[str, str] | None:
        taken = record.status in t.STOPPED and any(reason.code == PREEMPTED for reason in record.reasons)
        return (PREEMPTED, texts_of(record.reasons)) if taken else None

    def made(self, record: t.IbmRecord) -> None:
        """An instance was made here. Any thread."""
        with self._made_lock:
            self._made[record.id] = record.instance_id
            if len(self._made) > MANY:
                del self._made[next(iter(self._made))]

    def close(self) -> None:
        self.client.calls.close()


class IbmDeletion(DeletionMachine[t.IbmRecord]):
    """Deletes an instance, waits until it has ended, and keeps or deletes its floating IP."""

    cloud: IbmMachines
    _pool: IbmPool | None = None

    def before(self, record: t.IbmRecord | None) -> Callable[[], Any] | None:
        if record is not None:
            self._pool = self.cloud.config.pools.get(record.metadata.get(POOL_KEY, ""))
        return None

    def after(self) -> Callable[[], Any] | None:
        name = self.external_id
        # Of an instance that was not seen it is not known which pool it is of.
        pools = self.cloud.config.pools.values() if self._pool is None else (self._pool,)
        if not name or not any(pool.public_ipv4 for pool in pools):
            return None
        return lambda: self.cloud.floating.release(name)

    def begun(self, record: t.IbmRecord) -> bool:
        return record.status == t.DELETING

    def busy(self, error: LaunchError) -> bool:
        """Another operation on the instance is under way."""
        return busy(error)


# `IbmCreation`: the launch of one instance, with its floating IP.

#: So long after a refusal a floating IP is bound again to an instance that is not ready for it.
BUSY_SECONDS: Final = 3.0


class IbmCreation(PlacedCreation[t.IbmRecord, IbmPlace]):
    """Makes an instance and waits until it can be reached. A creation without an answer is sent again: its name is its
    key.
    """

    idempotent = True
    deletion_class = IbmDeletion
    # A quota may be that of floating IPs of a zone.
    elsewhere = (CapacityException, CloudQuota)
    no_capacity = "cannot_start_capacity"

    cloud: IbmMachines

    def __init__(self, cloud: IbmMachines, order: Order) -> None:
        super().__init__(cloud, order)
        #: What is done about the floating IP, and the outcome.
        self._work: Future[t.IbmFloatingIp] | None = None
        self._floating: t.IbmFloatingIp | None = None
        self._bind_at = float("-inf")

    def id_in_advance(self) -> str:
        return self.key().name(self.order.hostname)

    # -- making it --

    def all_places(self) -> list[IbmPlace]:
        with nothing_sent():
            return places_of(self.label, self.cloud.facts.subnets(self.label.pool))

    def another_place(self, error: LaunchError) -> bool:
        if not isinstance(error, CloudQuota):
            return super().another_place(error)
        if self._shortage(self.places[0]) is None:
            return False
        # The zone has no more floating IPs. Another one may have some.
        others = [place for place in self.places if self._shortage(place) is None]
        if not others:
            return False
        self.log.info("No floating IP for %s, trying %s: %s", self.places[0], others[0], error)
        self.places = others
        return True

    def _shortage(self, place: IbmPlace) -> CloudQuota | None:
        """Why the instance would get no floating IP there; None = it may, or needs none."""
        return self.cloud.floating.shortage(place.zone) if self.label.pool.public_ipv4 else None

    def create_at(self, place: IbmPlace, key: CreationKey) -> str:
        name = key.name(self.order.hostname)
        if (shortage := self._shortage(place)) is not None:
            raise shortage
        with nothing_sent():
            body = self.cloud.facts.instance_body(name, self.label, place, self.order.image, self.metadata)
        try:
            self.cloud.made(self.cloud.client.create_instance(body, lambda: self.permit_at(place)))
        except CloudRefused as error:
            if not exists(error):
                raise
            # Of an order of ours that was not answered, or of others.
            found = self.cloud.client.instance_named(name)
            if found is None or not is_of(found.metadata, self.metadata) or self._is_foreign(found.instance_id):
                raise
            self.log.info("Instance %s was made by an order that was not answered", name)
        return name

    def _is_foreign(self, instance_id: str) -> bool:
        """Does another installation have an instance? Only the tags of its boot volume say so (D-10)."""
        return any(
            foreign(t.metadata_of_tags(volume, self.cloud.provider)) is not None
            for volume in self.cloud.client.volumes()
            if instance_id in volume.instance_ids
        )

    def forget(self) -> None:
        self.cloud.facts.forget()

    def moved(self) -> None:
        self._work = self._floating = None

    # -- waiting for it --

    def lets_go_on(self, record: t.IbmRecord | None) -> bool:
        if record is None or record.status in (t.RUNNING, t.FAILED, t.DELETING, *t.STOPPED):
            return True
        return self.label.pool.public_ipv4 and self._work is None and bool(record.interface_id)

    def seen(self, record: t.IbmRecord) -> Instance | bool:
        if record.status == t.DELETING:
            raise self.gone()
        if record.status == t.FAILED or record.status in t.STOPPED:
            raise self._ended(record)
        if self.label.pool.public_ipv4 and not self._has_address(record):
            return False
        if record.status != t.RUNNING:
            return False
        self.settled()
        return self.cloud.instance(record, None if self._floating is None else self._floating.address)

    def _ended(self, record: t.IbmRecord) -> LaunchError:
        """The error of a launch whose instance will not run."""
        text = f"{self.where}: instance {record.id} is {record.status}"
        error = meaning(text, list(record.reasons)) if record.reasons else None
        codes = {reason.code for reason in record.reasons}
        if isinstance(error, CloudQuota):
            return error
        if codes & CAPACITY or PREEMPTED in codes:
            return CloudNoCapacityLater(str(error))
        return LaunchStatusException(f"{text}: {texts_of(record.reasons) or 'IBM gives no reason'}")

    # -- its floating IP --

    def _has_address(self, record: t.IbmRecord) -> bool:
        """Is a floating IP bound to it that no one else has? Does not block."""
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
                self._bind_at = monotonic() + BUSY_SECONDS
        if self._floating is None and record.interface_id and self.reached(self._bind_at):
            self._work = self.cloud.others.submit(self._bind, record)
            self._work.add_done_callback(lambda _: self.wake())
        return self._floating is not None

    def _bind(self, record: t.IbmRecord) -> t.IbmFloatingIp:
        group = self.cloud.facts.group_id(t.group_of_pool(self.cloud.provider, self.label.pool.name))
        return self.cloud.floating.bind(record.id, group, record.zone, record.interface_id, self.permit)
