# SPDX-License-Identifier: Apache-2.0
"""Instances of one provider: how they are listed and deleted."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final

from nodepool.driver.framework.batches import Batches
from nodepool.driver.framework.cloud_errors import CloudAway, CloudNotFound
from nodepool.driver.framework.repeats import Repeats
from nodepool.driver.framework.zone_places import ZonePlaces
from nodepool.driver.gce.client import CALL_SECONDS, ComputeEngine
from nodepool.driver.gce.errors import BUSY
from nodepool.driver.gce.names import record_id, zone_and_name
from nodepool.driver.gce.operations import InsertOperations
from nodepool.driver.gce.places import GcePlace
from nodepool.driver.gce.proof import MANY, DeletionProof
from nodepool.driver.gce.types import ENDING, PREEMPTED, GceRecord
from nodepool.driver.statemachine import DeletionMachine, InstanceCloud
from nodepool.driver.statemachine.metadata import PROVIDER_KEY
from nodepool.exceptions import LaunchError

if TYPE_CHECKING:
    from nodepool.driver.gce.config import GceProviderConfig
    from nodepool.driver.gce.facts import GceFacts
    from nodepool.driver.gce.quota import ProjectLimits

log = logging.getLogger("nodepool.driver.gce.instances")

#: Names of instances that Nodepool 11.0.0 makes: they have no labels.
_UNLABELLED: Final = re.compile(r"np\d+")


class GceInstances(InstanceCloud[GceRecord]):
    """What launches and deletions of one provider share."""

    # An answer may take twice as long as each of its parts.
    call_seconds = 2 * CALL_SECONDS
    # Google takes 1500 orders at once, and half a second to answer each.
    create_threads = 40
    most_threads = 56
    absence_is_proved = True
    # An instance takes some 20 s to boot, and a list of many is a large answer.
    shortest_list_pause = 1.0

    def __init__(
        self, config: GceProviderConfig, client: ComputeEngine, facts: GceFacts, limits: ProjectLimits
    ) -> None:
        super().__init__(config.name)
        self.config = config
        self.client = client
        self.facts = facts
        self.limits = limits
        self.places: ZonePlaces[GcePlace] = ZonePlaces()
        self.operations = InsertOperations(config.name, client)
        #: Metadata of instances without labels, by id. One thread at a time lists, and uses it.
        self._items: dict[str, dict[str, str]] = {}
        #: Of the latest list that a zone answered. The same.
        self._before: dict[str, list[GceRecord]] = {}
        self._repeats = Repeats()
        self._proofs: Batches[str] = Batches(DeletionProof(config.name, client).look, self.others, MANY)

    # -- lists --

    def list_instances(self, since: str | None) -> list[GceRecord]:
        self.operations.look()
        records, unreachable = self.client.instances()
        for zone in unreachable:
            if self._repeats.worth_saying(zone):
                log.warning("Provider %s: zone %s does not answer; its last list counts", self.provider, zone)
        records += self._unseen(unreachable, records)
        records = [record if record.metadata else self._with_items(record) for record in records]
        self._remember(records)
        return records

    def _unseen(self, unreachable: Iterable[str], records: Iterable[GceRecord]) -> list[GceRecord]:
        """What zones showed before that do not answer, but for what a part of their list shows."""
        seen = {record.id for record in records}
        return [record for zone in unreachable for record in self._before.get(zone, ()) if record.id not in seen]

    def _with_items(self, record: GceRecord) -> GceRecord:
        """The metadata items of an instance that Nodepool 11.0.0 may have made: they do not change (GC-3)."""
        if not _UNLABELLED.fullmatch(record.name):
            return record
        known = self._items.get(record.id)
        if known is None:
            try:
                items = self.client.metadata_items(record.zone, record.name)
            except CloudNotFound:
                items = {}
            except LaunchError as error:
                log.debug("Instance %s: %s", record.id, error)
                return record
            known = {key: value for key, value in items.items() if key.startswith("nodepool_")}
            self._items[record.id] = known
        return record._replace(metadata=known)

    def _remember(self, records: list[GceRecord]) -> None:
        there = {record.id for record in records}
        self._items = {key: items for key, items in self._items.items() if key in there}
        self._before = {zone: [record for record in records if record.zone == zone] for zone in self.client.zones}

    def get_instance(self, record_id: str) -> GceRecord:
        zone, name = zone_and_name(record_id)
        try:
            return self.client.instance(zone, name)
        except CloudNotFound as error:
            if self.operations.runs_for(zone, name):
                raise CloudAway(f"{error}; its creation is still under way") from error
            raise

    def delete_instance(self, record_id: str) -> None:
        self.client.delete_instance(*zone_and_name(record_id))

    def why_ended(self, record: GceRecord) -> tuple[str, str] | None:
        # Google gives a spot instance that it takes 30 s in STOPPING; then it is TERMINATED, or deleted.
        if record.spot and record.status in ENDING:
            return PREEMPTED, f"spot instance {record.name} is {record.status}: Google took it, or others stopped it"
        return None

    def begin_proof(self, record_id: str) -> Future[GceRecord | None]:
        # Batches tell of errors only: that it is there still is no news.
        proof: Future[Any] = self._proofs.add(record_id)
        return proof

    def close(self) -> None:
        self.client.close()

    # -- ids --

    def stored_id(self, record_id: str) -> str:
        """``external_id`` of an instance: its name (CM-8); with several zones the zone comes before."""
        return record_id if len(self.config.zones) > 1 else zone_and_name(record_id)[1]

    def record_id(self, external_id: Any) -> str | None:
        """The id in lists, of an instance that a node names; None = there is none.

        A node of a configuration with one zone has the name only.
        """
        if not isinstance(external_id, str) or not external_id:
            return None
        if "/" in external_id:
            return external_id
        zones = self.config.zones
        for zone in zones:
            known = self.inventory.get(record_id(zone, external_id))
            if known is not None and known.metadata.get(PROVIDER_KEY) == self.provider:
                return known.id
        return record_id(zones[0], external_id)


class GceDeletion(DeletionMachine[GceRecord]):
    """Deletes an instance, and with it its disk, and waits until it is gone (GC-9)."""

    def begun(self, record: GceRecord) -> bool:
        return record.status in ENDING and record.status != "TERMINATED"

    def busy(self, error: LaunchError) -> bool:
        return getattr(error, "code", "") in BUSY
