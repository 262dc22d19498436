# SPDX-License-Identifier: Apache-2.0
"""Instances of one GCE provider.

First how they are listed and deleted. Then what operations say: how creations end, whether an instance is deleted. Then
the launch of one (`GceCreation`), and the body of the call that makes it.
"""

from __future__ import annotations

import itertools
import logging
import re
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final

from nodepool.clock import monotonic
from nodepool.driver.framework.cloud_errors import (
    CloudAway,
    CloudNoCapacity,
    CloudNoCapacityLater,
    CloudNotFound,
    CloudRefused,
    nothing_sent,
    or_none,
)
from nodepool.driver.framework.fact import Repeats
from nodepool.driver.framework.quota_support import ZonePlaces
from nodepool.driver.gce import types as t
from nodepool.driver.gce.client import CALL_SECONDS, ComputeEngine
from nodepool.driver.gce.config import GceLabel, GcePool, GceProviderConfig
from nodepool.driver.gce.facts import GceFacts, GcePlace, places_of
from nodepool.driver.gce.types import record_id
from nodepool.driver.statemachine import (
    CloudInstance,
    CreationKey,
    DeletionMachine,
    Instance,
    InstanceCloud,
    Order,
    PlacedCreation,
)
from nodepool.driver.statemachine.instance import PROVIDER_KEY, foreign, is_of
from nodepool.driver.statemachine.inventory import Batches
from nodepool.exceptions import LaunchError, LaunchStatusException
from nodepool.plan.retries import Backoff, CircuitBreaker

log = logging.getLogger("nodepool.driver.gce.instances")

#: Names of instances that Nodepool 11.0.0 makes: they have no labels.
_UNLABELLED: Final = re.compile(r"np\d+")


class GceInstances(InstanceCloud[t.GceRecord]):
    """What launches and deletions of one provider share."""

    # An answer may take twice as long as each of its parts.
    call_seconds = 2 * CALL_SECONDS
    # Google takes 1500 orders at once, and half a second to answer each.
    create_threads = 40
    most_threads = 56
    absence_is_proved = True
    resumes_launches = True
    # An instance takes some 20 s to boot, and a list of many is a large answer.
    shortest_list_pause = 1.0

    def __init__(self, config: GceProviderConfig, client: ComputeEngine, facts: GceFacts) -> None:
        super().__init__(config.name)
        self.config = config
        self.client = client
        self.facts = facts
        self.places: ZonePlaces[GcePlace] = ZonePlaces()
        self.operations = InsertOperations(config.name, client)
        #: Metadata of instances without labels, by id. One thread at a time lists, and uses it.
        self._items: dict[str, dict[str, str]] = {}
        #: Of the latest list that a zone answered. The same.
        self._before: dict[str, list[t.GceRecord]] = {}
        self._repeats = Repeats()
        self._proofs: Batches[str] = Batches(lambda take: proven_gone(client, take), self.others, MANY)

    # -- lists --

    def list_instances(self, since: str | None) -> list[t.GceRecord]:
        self.operations.look()
        records, unreachable = self.client.instances()
        for zone in unreachable:
            if self._repeats.worth_saying(zone):
                log.warning("Provider %s: zone %s does not answer; its last list counts", self.provider, zone)
        records += self._unseen(unreachable, records)
        records = [record if record.metadata else self._with_items(record) for record in records]
        self._remember(records)
        return records

    def _unseen(self, unreachable: Iterable[str], records: Iterable[t.GceRecord]) -> list[t.GceRecord]:
        """What zones showed before that do not answer, but for what a part of their list shows."""
        seen = {record.id for record in records}
        return [record for zone in unreachable for record in self._before.get(zone, ()) if record.id not in seen]

    def _with_items(self, record: t.GceRecord) -> t.GceRecord:
        """The metadata items of an instance that Nodepool 11.0.0 may have made: they do not change (GC-3)."""
        if not _UNLABELLED.fullmatch(record.name):
            return record
        known = self._items.get(record.id)
        if known is None:
            try:
                items = or_none(lambda: self.client.metadata_items(record.zone, record.name)) or {}
            except LaunchError as error:
                log.debug("Instance %s: %s", record.id, error)
                return record
            known = {key: value for key, value in items.items() if key.startswith("nodepool_")}
            self._items[record.id] = known
        return record._replace(metadata=known)

    def _remember(self, records: list[t.GceRecord]) -> None:
        there = {record.id for record in records}
        self._items = {key: items for key, items in self._items.items() if key in there}
        self._before = {zone: [record for record in records if record.zone == zone] for zone in self.client.zones}

    def get_instance(self, record_id: str) -> t.GceRecord:
        zone, name = t.zone_and_name(record_id)
        try:
            return self.client.instance(zone, name)
        except CloudNotFound as error:
            if self.operations.runs_for(zone, name):
                raise CloudAway(f"{error}; its creation is still under way") from error
            raise

    def delete_instance(self, record_id: str) -> None:
        self.client.delete_instance(*t.zone_and_name(record_id))

    def begin_deletion(self, record_id: str) -> Future[None]:
        return self.others.submit(self._delete_ours, record_id)

    def _delete_ours(self, record_id: str) -> None:
        """A node names its instance before that is made: another Nodepool in the project may have one of the name."""
        record = self.inventory.get(record_id)
        marks = {} if record is None else record.metadata
        if record is None:
            zone, name = t.zone_and_name(record_id)
            marks = self.client.instance(zone, name).metadata or self.client.metadata_items(zone, name)
        if marks.get(PROVIDER_KEY, self.provider) != self.provider or foreign(marks) is not None:
            log.warning("Instance %s is of another Nodepool and stays; give each its own project or zone", record_id)
            raise CloudNotFound(f"{record_id} is of another Nodepool", status=404)
        self.delete_instance(record_id)

    def learn(self, records: Sequence[t.GceRecord]) -> None:
        self.facts.know_types(records)

    def instance(self, record: t.GceRecord, label: GceLabel | None = None) -> CloudInstance:
        """See GC-6. :param label: of the launch; None = it is only listed."""
        return CloudInstance(
            record,
            self.facts.use_of(record, label),
            external_id=self.stored_id(record.id),
            ready=record.status == t.RUNNING,
            cloud="Google",
            region=record.zone.rpartition("-")[0],
            az=record.zone,
            public_ipv4=record.public_ipv4,
            private_ipv4=record.private_ipv4,
        )

    def why_ended(self, record: t.GceRecord) -> tuple[str, str] | None:
        # Google gives a spot instance that it takes 30 s in STOPPING; then it is TERMINATED, or deleted.
        if record.spot and record.status in t.ENDING:
            return t.PREEMPTED, f"spot instance {record.name} is {record.status}: Google took it, or others stopped it"
        return None

    def begin_proof(self, record_id: str) -> Future[t.GceRecord | None]:
        # Batches tell of errors only: that it is there still is no news.
        proof: Future[Any] = self._proofs.add(record_id)
        return proof

    def close(self) -> None:
        self.client.close()

    # -- ids --

    def stored_id(self, record_id: str) -> str:
        """``external_id`` of an instance: its name (CM-8); with several zones the zone comes before."""
        return record_id if len(self.config.zones) > 1 else t.zone_and_name(record_id)[1]

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


class GceDeletion(DeletionMachine[t.GceRecord]):
    """Deletes an instance, and with it its disk, and waits until it has ended (GC-9)."""

    def begun(self, record: t.GceRecord) -> bool:
        return record.status in t.ENDING and record.status != "TERMINATED"

    def busy(self, error: LaunchError) -> bool:
        return getattr(error, "code", "") in t.BUSY


# `InsertOperations`: how the creations of instances end. An insert is accepted at once; whether there is quota and
# capacity for it, only its operation says (GC-5).
#
# One list of operations serves all creations of a provider in a zone. It is made with the lists of instances, while
# there are creations in the zone whose operation is not over.


#: From one list of operations to the next, in seconds.
PAUSE_SECONDS: Final = 1.0
#: An operation that was in no list for so long is asked for itself.
MISSING_SECONDS: Final = 20.0
#: So many operations of a zone are looked at, the newest first: two pages.
MOST_LISTED: Final = 1000
#: So many are asked for themselves at once, in each zone: lists of instances wait for them.
MOST_ASKED: Final = 10
#: For so long a zone that does not answer is not asked: the lists of instances of all zones wait for each attempt.
AWAY: Final = Backoff(15.0, 300.0)


class Insert:
    """One insert. ``done`` is set once, then ``failure`` says what was wrong; None = nothing. Any thread reads it.

    :param head: of errors: whose it is.
    :param wake: called when it is over. Must not block.
    """

    def __init__(self, operation: t.Operation, head: str, wake: Callable[[], None], now: float) -> None:
        self.name = operation.name
        self.zone = operation.zone
        self.instance = operation.target
        self.failure: CloudRefused | CloudAway | None = None
        self.done = False
        self._head = head
        self._wake = wake
        #: When it was asked for itself the last time.
        self.asked_at = now
        self.take(operation)

    def take(self, operation: t.Operation) -> None:
        """What was just seen of it."""
        if self.done or not operation.done:
            return
        self.failure = t.operation_failure(self._head, operation.data)
        self.done = True
        self._wake()

    def lost(self) -> None:
        """Compute Engine does not know the operation any more: the instance itself says how it ended."""
        self.done = True
        self._wake()


class InsertOperations:
    """Of one provider. Thread-safe; ``_lock`` guards the table, and is not held during a call.

    An insert that no one holds any more is forgotten.
    """

    def __init__(self, provider: str, calls: ComputeEngine) -> None:
        self._provider = provider
        self._calls = calls
        self._lock = threading.Lock()
        self._open: weakref.WeakValueDictionary[str, Insert] = weakref.WeakValueDictionary()
        self._looked_at = float("-inf")
        #: What of which zone is left alone. One thread at a time lists, and uses it.
        self._breakers: dict[tuple[str, str], CircuitBreaker] = {}
        self._repeats = Repeats()

    def watch(self, operation: t.Operation, head: str, wake: Callable[[], None]) -> Insert:
        """An insert was accepted. Does not block."""
        insert = Insert(operation, head, wake, monotonic())
        if not insert.done:
            with self._lock:
                self._open[insert.name] = insert
        return insert

    def runs_for(self, zone: str, instance: str) -> bool:
        """Is the insert of an instance under way? Then the instance may not be there yet."""
        with self._lock:
            found = list(self._open.values())
        return any((insert.zone, insert.instance) == (zone, instance) for insert in found)

    def look(self) -> None:
        """See which are over. Blocks; any thread. Trouble is logged: lists of instances go on."""
        now = monotonic()
        with self._lock:
            if not self._open or now - self._looked_at < PAUSE_SECONDS:
                return
            self._looked_at = now
            waiting = list(self._open.values())
        for zone in dict.fromkeys(insert.zone for insert in waiting):
            self._look_at(zone, {insert.name: insert for insert in waiting if insert.zone == zone}, now)
        with self._lock:
            for name in [name for name, insert in self._open.items() if insert.done]:
                self._open.pop(name, None)

    def _look_at(self, zone: str, missing: dict[str, Insert], now: float) -> None:
        """The inserts of a zone, by name."""
        trouble = self._try(("list", zone), lambda: self._list(zone, missing, now))
        # One may be found where a list of all that were ever made takes too long.
        due = [insert for insert in missing.values() if now - insert.asked_at >= MISSING_SECONDS]
        if due:
            trouble = self._try(("operation", zone), lambda: self._ask_each(zone, due[:MOST_ASKED], now)) or trouble
        if not trouble:
            self._repeats.over(zone)
        elif self._repeats.worth_saying(zone):
            log.warning("Provider %s: the ends of creations in %s are not known: %s", self._provider, zone, trouble)

    def _try(self, what: tuple[str, str], ask: Callable[[], None]) -> str:
        """Ask for something of a zone, unless that is left alone because there was no answer.

        :return: what went wrong, now or the last time; "" = nothing.
        """
        breaker = self._breakers.setdefault(what, CircuitBreaker(1, 0.0, AWAY))
        if breaker.probe_due(monotonic()):
            return breaker.reason
        try:
            ask()
        except LaunchError as error:
            if isinstance(error, CloudAway):
                breaker.failed(monotonic(), str(error))
            return str(error)
        breaker.worked()
        return ""

    def _ask_each(self, zone: str, due: Iterable[Insert], now: float) -> None:
        for insert in due:
            insert.asked_at = now
            try:
                insert.take(self._calls.operation(zone, insert.name))
            except CloudNotFound:
                insert.lost()

    def _list(self, zone: str, missing: dict[str, Insert], now: float) -> None:
        """See those that a list has; the others stay."""
        for operation in itertools.islice(self._calls.operations(zone, "insert", "listing operations"), MOST_LISTED):
            insert = missing.pop(operation.name, None)
            if insert is not None:
                insert.asked_at = now
                insert.take(operation)
            if not missing:
                # The newest come first.
                return


# Are instances deleted that lists do not show any more? Their deletions are operations, and those say it (GC-9, CM-7).

#: So many instances of a zone are asked for one by one: the answer 404 is the proof.
FEW: Final = 1
#: Instances that one list of operations proves to be deleted.
MANY: Final = 250
#: So many operations of a zone are looked at, the newest first: two pages.
OPERATIONS: Final = 1000


def proven_gone(client: ComputeEngine, take: Callable[[], list[str]]) -> Mapping[str, Exception]:
    """For instances that were in lists, whose deletion was accepted, and that a later list lacks. Blocks.

    The newest deletion of each says whether it has ended well. For many instances of a zone that is one call instead of
    one for each. For `nodepool.driver.statemachine.inventory.Batches`: NotFound for each that does not exist any more;
    nothing = not known yet.

    :param take: gives the ids of instances in lists.
    """
    zones: dict[str, list[str]] = {}
    for one in take():
        zones.setdefault(t.zone_and_name(one)[0], []).append(one)
    found: dict[str, Exception] = {}
    for zone, ids in zones.items():
        try:
            if len(ids) <= FEW:
                for one in ids:
                    client.instance(*t.zone_and_name(one))
                continue
            operations = itertools.islice(client.operations(zone, "delete", "listing deletions"), OPERATIONS)
            for one in ended_well(ids, operations):
                found[one] = CloudNotFound(f"{one} does not exist any more, its deletion has ended", status=404)
        except LaunchError as error:
            # The other zones may answer.
            found |= dict.fromkeys(ids, error)
    return found


def ended_well(ids: Iterable[str], operations: Iterable[t.Operation]) -> set[str]:
    """Those of some instances whose newest deletion has ended without an error. Pure.

    :param operations: deletions, the newest first; read until all instances were found.
    """
    missing, found = set(ids), set()
    for operation in operations:
        one = record_id(operation.zone, operation.target)
        if one not in missing:
            continue
        missing.discard(one)
        if operation.done and not (operation.data.get("error") or operation.data.get("httpErrorStatusCode")):
            found.add(one)
        if not missing:
            break
    return found


# `GceCreation`: the launch of one instance.

#: From a creation for which too many operations were under way to the next one.
CONCURRENT_PAUSE: Final = Backoff(2.0, 30.0)
#: What keeps a launch from this zone or machine type only.
_NOT_HERE: Final = "the zone does not have the machine type"


class GceCreation(PlacedCreation[t.GceRecord, GcePlace]):
    """Makes an instance and waits until it can be reached.

    A creation without an answer is sent again with its request id. One that has no capacity, as its answer or later its
    operation says, is begun anew at the next place, because the place is a part of its id.
    """

    idempotent = True
    deletion_class = GceDeletion
    no_capacity = "ZONE_RESOURCE_POOL_EXHAUSTED"

    cloud: GceInstances

    def __init__(self, cloud: GceInstances, order: Order) -> None:
        super().__init__(cloud, order)
        self._insert: Insert | None = None
        #: How often too many operations were under way.
        self._crowded = 0
        #: Was there an order at the present place, with or without an answer?
        self._ordered = False

    # -- making it --

    def all_places(self) -> list[GcePlace]:
        places, silent = places_of(self.label), self.cloud.client.silent_zones
        return [place for place in places if not silent.silent(place.zone)] or places

    def id_in_advance(self) -> str:
        return record_id(self.place().zone, self.key().name(self.order.hostname))

    def stored_id(self, record_id: str) -> str:
        return self.cloud.stored_id(record_id)

    def create(self, key: CreationKey) -> str:
        place, name = self.place(), key.name(self.order.hostname)
        self._check_answers(place)
        try:
            with nothing_sent():
                if self.cloud.facts.machine_type(place.zone, place.machine_type) is None:
                    # Not of this zone, so nothing is wrong with the label as long as there is another place.
                    raise CloudNoCapacity(f"{self.where}: {place}: {_NOT_HERE}", code="notFound")
                image = self.cloud.facts.image_link(self.label, self.order.image)
        except CloudAway:
            self._check_answers(place)
            raise
        body = instance_body(name, self.label, place, image, self.metadata)
        try:
            operation = self.cloud.client.insert(
                place.zone, body, t.request_id(key, place.zone), lambda: self._permit(place)
            )
        except CloudRefused as error:
            if error.code not in t.EXISTS:
                raise
            # Of an order of ours that was not answered, or of another.
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
        if len(self.places) > 1 and not self._ordered and self.cloud.client.silent_zones.silent(place.zone):
            raise CloudNoCapacity(f"{self.where}: {place}: the zone does not answer", code="UNREACHABLE")

    def _permit(self, place: GcePlace) -> None:
        self.permit_at(place)
        self._ordered = True

    def forget(self) -> None:
        self.cloud.facts.forget_images()

    def put_off(self, error: Exception) -> float | None:
        if not isinstance(error, CloudAway) or error.code not in t.THROTTLED:
            return None
        self._crowded += 1
        pause = CONCURRENT_PAUSE.pause(self._crowded)
        self.log.info("Too many calls or operations are under way, tried again in %g s: %s", pause, error)
        return pause

    def begin_anew(self, error: LaunchError) -> float | None:
        self._insert = None
        pause = self.put_off(error)
        return super().begin_anew(error) if pause is None else pause

    def moved(self) -> None:
        self._ordered = False

    # -- waiting for it --

    def lets_go_on(self, record: t.GceRecord | None) -> bool:
        return record is None or record.status in t.ENDING or self._is_up(record)

    def _is_up(self, record: t.GceRecord) -> bool:
        addresses = bool(record.private_ipv4) and bool(record.public_ipv4 or not self.label.pool.public_ipv4)
        return record.status == t.RUNNING and addresses

    def seen(self, record: t.GceRecord) -> Instance | bool:
        if self._is_up(record):
            self._insert = None
            self.settled()
            return self.cloud.instance(record, self.label)
        self._raise_failure()
        if record.status in t.ENDING:
            raise self._ended(f"instance {record.name} is {record.status}")
        return False

    def unlisted(self) -> None:
        self._raise_failure()

    def _raise_failure(self) -> None:
        """What the operation says: the instance may still be there when it has failed, or not be there yet."""
        failure = None if self._insert is None else self._insert.failure
        if isinstance(failure, CloudNoCapacity):
            raise CloudNoCapacityLater(str(failure))
        if isinstance(failure, CloudRefused) and failure.code == t.UNSUPPORTED and self.places[0].spot:
            raise CloudNoCapacityLater(f"{failure}; Google took the spot instance away while it was created")
        if isinstance(failure, CloudAway) and failure.code not in t.THROTTLED:
            # Google has answered: this instance failed, and the cloud is not away.
            raise LaunchStatusException(str(failure))
        if failure is not None:
            raise failure

    def gone(self) -> Exception:
        return self._ended(f"instance {self.record_id} does not exist any more")

    def _ended(self, text: str) -> Exception:
        """The error of a launch whose instance was taken away."""
        if self.places and self.places[0].spot:
            return CloudNoCapacityLater(f"{self.where}: spot {text}: it was preempted by Google, or deleted by hand")
        return LaunchStatusException(f"{self.where}: {text}: it was stopped or deleted by hand")


# What an instance is to be like: the body of the insert (GC-2, GC-3). Pure functions.

#: Of the public address, as the Google Cloud console calls it.
ACCESS_NAME = "External NAT"


def instance_body(
    name: str, label: GceLabel, place: GcePlace, image: str, metadata: Mapping[str, str]
) -> dict[str, Any]:
    """The body.

    :param image: its link.
    :param metadata: says whose the instance is: labels of instance and disk, and metadata items as in 11.0.0.
    """
    zone, labels = f"zones/{place.zone}", t.labels_of(metadata)
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
