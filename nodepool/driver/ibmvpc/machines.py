# SPDX-License-Identifier: Apache-2.0
"""Instances of one provider: how they are listed and deleted."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from nodepool.clock import monotonic
from nodepool.driver.framework.cloud_errors import CloudNotFound
from nodepool.driver.framework.fact import ToldOnce
from nodepool.driver.framework.places import ZonePlaces
from nodepool.driver.ibmvpc.client import CALL_SECONDS, IbmVpc
from nodepool.driver.ibmvpc.errors import PREEMPTED, busy, told
from nodepool.driver.ibmvpc.facts import IbmPlace, use_of
from nodepool.driver.ibmvpc.types import DELETING, RUNNING, STOPPED, IbmRecord
from nodepool.driver.statemachine import DeletionMachine, Instance, InstanceCloud, instance
from nodepool.driver.statemachine.instance import POOL_KEY
from nodepool.metrics import reports

if TYPE_CHECKING:
    from nodepool.driver.ibmvpc.config import IbmProviderConfig
    from nodepool.driver.ibmvpc.facts import IbmFacts
    from nodepool.driver.ibmvpc.floating import IbmFloatingIps
    from nodepool.exceptions import LaunchError
    from nodepool.model.quota import QuotaInformation

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
        #: When deletions were ordered, by record id. The same lock guards it.
        self._ordered: dict[str, float] = {}
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
        if record is not None and record.status != DELETING and self.uses_floating_ips(record):
            with self._made_lock:
                self._ordered.setdefault(record_id, self.clock())
                _forget_oldest(self._ordered)
        self.client.delete_instance(instance_id)

    def ask_for(self, record_id: str) -> IbmRecord | None:
        record = self.client.instance_named(record_id)
        # An instance of others may have the name.
        return record if record is not None and record.id == record_id else None

    def why_ended(self, record: IbmRecord) -> tuple[str, str] | None:
        taken = record.status in STOPPED and any(reason.code == PREEMPTED for reason in record.reasons)
        return (PREEMPTED, told(record.reasons)) if taken else None

    def ordered_at(self, record_id: str) -> float:
        """When the deletion of an instance was ordered here first, while it was there for certain; may be never.

        It is forgotten then.
        """
        with self._made_lock:
            return self._ordered.pop(record_id, float("-inf"))

    def made(self, record: IbmRecord) -> None:
        """An instance was made here. Any thread."""
        with self._made_lock:
            self._made[record.id] = record.instance_id
            _forget_oldest(self._made)

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
        self.client.close()


def _forget_oldest(table: dict[str, Any]) -> None:
    if len(table) > MANY:
        del table[next(iter(table))]


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
        return lambda: self.cloud.floating.release(name, self.cloud.ordered_at(name))

    def begun(self, record: IbmRecord) -> bool:
        return record.status == DELETING

    def busy(self, error: LaunchError) -> bool:
        """Another operation on the instance is under way."""
        return busy(error)


# `StoppedInstances`: tells of instances of ours that stopped by themselves, such as spot instances that IBM took.

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
