# SPDX-License-Identifier: Apache-2.0
"""Instances of one AWS provider: how they are listed, made and ended.

First lists and deletions, then one instance and why it ended, then its launch: the usual one, one through a fleet, and
one on a dedicated host of its own.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final

from nodepool.driver.aws.client import CONNECT_SECONDS, READ_SECONDS, Ec2
from nodepool.driver.aws.config import AwsLabel, AwsProviderConfig
from nodepool.driver.aws.facts import AccountLimits, AwsFacts, LaunchPlace, Places
from nodepool.driver.aws.launches import (
    BatchTags,
    InstanceOrder,
    LaunchBatches,
    LaunchTemplates,
    fleet_arguments,
    instance_tags,
    run_arguments,
    token_of,
    with_tags,
)
from nodepool.driver.aws.types import (
    AVAILABLE,
    FAILED,
    PENDING,
    RUNNING,
    SHUTTING_DOWN,
    TERMINATED,
    AwsImage,
    AwsRecord,
    AwsVolume,
)
from nodepool.driver.framework.cloud_errors import (
    CloudNoCapacityLater,
    CloudQuota,
    CloudRefused,
    nothing_sent,
    one_line,
)
from nodepool.driver.framework.fact import ToldOnce
from nodepool.driver.framework.orders import Batches
from nodepool.driver.framework.rate import RateLimiter
from nodepool.driver.statemachine import (
    CloudInstance,
    CreationKey,
    DeletionMachine,
    Instance,
    InstanceCloud,
    Order,
    PlacedCreation,
    instance,
)
from nodepool.driver.statemachine.instance import Log
from nodepool.driver.statemachine.machines import REPEAT, REPEATS, cloud_is_away
from nodepool.exceptions import LaunchError, LaunchStatusException, RuntimeConfigurationException
from nodepool.guard import settle
from nodepool.metrics import reports

#: Instances that one call ends (AW-15), and so long at least until the next call, for which more gather.
TERMINATED_A_CALL: Final = 100
TERMINATE_SECONDS: Final = 0.25


class AwsInstances(InstanceCloud[AwsRecord]):
    """What launches and deletions of one provider share."""

    # What an answer has told may be missing in lists for some seconds.
    lag_seconds = 5.0
    new_may_be_unknown = True
    resumes_launches = True
    call_seconds = CONNECT_SECONDS + READ_SECONDS

    def __init__(self, config: AwsProviderConfig, client: Ec2, facts: AwsFacts, limits: AccountLimits) -> None:
        super().__init__(config.name)
        self.config = config
        self.client = client
        self.templates = LaunchTemplates(config, client)
        self.facts = facts
        self.limits = limits
        self.places = Places(facts)
        #: Instances that the latest list shows as terminated, by id: they say why. Replaced as a whole.
        self.terminated: Mapping[str, AwsRecord] = {}
        #: Of the region, by id, as far as the limits count them. One thread lists, and uses it.
        self._volumes: Mapping[str, AwsVolume] = {}
        #: Instances whose end was logged: lists show them for about an hour.
        self._ended = ToldOnce()
        self._spacing = RateLimiter(config.name, 1 / TERMINATE_SECONDS, sleep=client.transport.sleep)
        self._terminations: Batches[str] = Batches(self._terminate, self.others, TERMINATED_A_CALL)
        self.batch_tags = BatchTags(config.name, client, self.others)
        self.launches = LaunchBatches(client, self.creators, self.batch_tags.made)

    def list_instances(self, since: str | None) -> list[AwsRecord]:
        records = self.client.instances()
        self.terminated = {record.id: record for record in records if record.gone}
        self.batch_tags.seen(records)
        over = {
            record.id: record
            for record in records
            if record.status in (SHUTTING_DOWN, TERMINATED) and instance.node_id_of(record.metadata, self.provider)
        }
        for record_id in self._ended.new(over):
            self._log_end(over[record_id])
        return records

    def _log_end(self, record: AwsRecord) -> None:
        reports.report_instance_end(self.provider, record.reason_code)
        why, node_id = reason_of(record), instance.node_id_of(record.metadata, self.provider)
        if record.reason_code in _WANTED:
            log.debug("Instance %s of node %s ended: %s", record.id, node_id, why)
            return
        kind = "spot" if record.spot else "on demand"
        log.warning("Instance %s (%s) of node %s ended: %s", record.id, kind, node_id, why)

    def get_instance(self, record_id: str) -> AwsRecord:
        return self.client.instance(record_id)

    def record_id(self, external_id: Any) -> str | None:
        return instance_of(external_id)

    def why_ended(self, record: AwsRecord) -> tuple[str, str] | None:
        if record.status not in (SHUTTING_DOWN, TERMINATED):
            return None
        return record.reason_code or record.status, f"instance {record.id} is {record.status}: {reason_of(record)}"

    def learn(self, records: Sequence[AwsRecord]) -> None:
        for name in {record.type for record in records if record.type}:
            # That of an instance of others may be one that AWS does not show to all.
            with contextlib.suppress(RuntimeConfigurationException):
                self.facts.instance_type(name)
        volumes = self.client.volumes() if self.limits.counts_volumes else ()
        self._volumes = {volume.id: volume for volume in volumes}

    def instance(self, record: AwsRecord, label: AwsLabel | None = None) -> CloudInstance:
        """See AW-10. :param label: of the launch; None = it is only listed."""
        volumes = self._volumes if label is None else {}
        return CloudInstance(
            record,
            self.limits.use_of(record, volumes, label),
            external_id=external_id(record.id, record.host_id),
            ready=record.status == RUNNING,
            deleted=record.gone,
            cloud="AWS",
            region=self.config.region_name,
            az=record.zone,
            public_ipv4=record.public_ipv4,
            public_ipv6=record.ipv6,
            private_ipv4=record.private_ipv4,
            node_properties={"fleet": label is not None and label.fleet_types is not None, "spot": record.spot},
        )

    def delete_instance(self, record_id: str) -> None:
        for error in self.client.terminate(lambda: [record_id]).values():
            raise error

    def begin_deletion(self, record_id: str) -> Future[None]:
        return self._terminations.add(record_id)

    def _terminate(self, take: Callable[[], list[str]]) -> Mapping[str, Exception]:
        self._spacing.wait()
        return self.client.terminate(take)

    def close(self) -> None:
        self.client.transport.close()


class AwsDeletion(DeletionMachine[AwsRecord]):
    """Ends an instance and waits until it is gone; then its dedicated host is given back, if it has one.

    AWS keeps a host of macOS for 24 hours. The node does not wait for that: the search for leaks releases the host.
    """

    cloud: AwsInstances

    def __init__(self, cloud: AwsInstances, external_id: Any, log: Log) -> None:
        super().__init__(cloud, external_id, log)
        self._host_id = host_of(external_id)

    def begun(self, record: AwsRecord) -> bool:
        return record.status in (SHUTTING_DOWN, TERMINATED)

    def after(self) -> Callable[[], Any] | None:
        host_id, client = self._host_id, self.cloud.client
        return None if host_id is None else lambda: client.release_host(host_id)


# What the record of a node says of its instance.


def external_id(instance_id: str, host_id: str | None = None) -> dict[str, str]:
    """What the record of a node says of its instance; Nodepool 11 reads it.

    :param host_id: of the dedicated host that goes with it.
    """
    return {"instance": instance_id, **({"host": host_id} if host_id else {})}


def instance_of(stored: Any) -> str | None:
    """The instance of a node, out of its record, where anything may stand; in old ones it is a text (AW-7)."""
    return _text_in(stored if isinstance(stored, dict) else {"instance": stored}, "instance")


def host_of(stored: Any) -> str | None:
    """The dedicated host of a node, likewise."""
    return _text_in(stored, "host") if isinstance(stored, dict) else None


def _text_in(stored: dict[str, Any], name: str) -> str | None:
    found = stored.get(name)
    return found if isinstance(found, str) and found else None


# Why an instance ended (``StateReason``), and what that means for its launch.

log = logging.getLogger("nodepool.driver.aws.instances")

#: Reasons of states that say more than "it failed".
_QUOTA_REASONS: Final = frozenset({"Client.VolumeLimitExceeded", "Client.InstanceLimitExceeded"})
_CAPACITY_REASONS: Final = frozenset(
    {
        "Server.InsufficientInstanceCapacity",
        "Server.SpotInstanceTermination",
        "Server.SpotInstanceShutdown",
        "Client.SpotInstanceTermination",
    }
)


#: Somebody wanted it so: Nodepool after use, or a job.
_WANTED: Final = frozenset({"Client.UserInitiatedShutdown", "Client.InstanceInitiatedShutdown"})


def reason_of(record: AwsRecord) -> str:
    """In the words of AWS."""
    return f"{record.reason_code}: {one_line(record.reason)}" if record.reason_code else "AWS gives no reason"


def ended(where: str, record: AwsRecord) -> Exception:
    """The error of a launch whose instance ended, in the words of AWS."""
    text = f"{where}: instance {record.id} is {record.status}: {reason_of(record)}"
    if record.reason_code in _QUOTA_REASONS:
        return CloudQuota(text, code=record.reason_code)
    if record.reason_code in _CAPACITY_REASONS:
        return CloudNoCapacityLater(text)
    return LaunchStatusException(text)


# `AwsCreation`: the launch of one instance; `InstanceCreation`: that of the usual ones.


class AwsCreation(PlacedCreation[AwsRecord, LaunchPlace]):
    """Has an instance made and waits until it runs. AWS knows a creation again by its client token."""

    idempotent = True
    deletion_class = AwsDeletion
    no_capacity = "InsufficientInstanceCapacity"

    cloud: AwsInstances

    def __init__(self, cloud: AwsInstances, order: Order) -> None:
        super().__init__(cloud, order)
        # Once: with other values than before AWS would not know it again.
        self._tags = instance_tags(order.hostname, self.label, self.metadata, order.request, order.log)

    @classmethod
    def of(cls, cloud: Any, order: Order) -> AwsCreation:
        label = order.label
        machine = FleetCreation if label.fleet_types else HostCreation if label.dedicated_host else InstanceCreation
        return machine(cloud, order)

    def find_places(self) -> list[LaunchPlace]:
        return self.cloud.places.of_label(self.label, self.order.request, self.order.az)

    def image(self) -> AwsImage:
        """What it is made of; may block."""
        return self.cloud.facts.image(self.order.image or self.cloud.facts.cloud_image_id(self.label))

    def forget(self) -> None:
        self.cloud.facts.forget(self.label)

    def stored_id(self, record_id: str) -> dict[str, str]:
        return external_id(record_id)

    def lets_go_on(self, record: AwsRecord | None) -> bool:
        return record is None or record.status != PENDING

    def seen(self, record: AwsRecord) -> Instance | bool:
        if record.status in (SHUTTING_DOWN, TERMINATED):
            raise ended(self.where, record)
        if record.status != RUNNING:
            return False
        self.settled()
        return self.cloud.instance(record, self.label)

    def gone(self) -> Exception:
        record = self.cloud.terminated.get(self.record_id or "")
        return super().gone() if record is None else ended(self.where, record)


class InstanceCreation(AwsCreation):
    """With RunInstances; those that have to wait go together."""

    #: What was ordered at the present place; None = nothing yet.
    _order: InstanceOrder | None = None

    def begin_creation(self, key: CreationKey) -> Future[str]:
        if self._order is not None:
            # There was no answer.
            return self.cloud.launches.again(self._order)
        made: Future[str] = Future()
        # What is to be made may have to be looked up first.
        order: Future[InstanceOrder] = self.submit(lambda: self._order_at_place(key), self.cloud.creators)

        def ordered(order: Future[InstanceOrder]) -> None:
            if order.cancelled() or order.exception() is not None:
                settle((made,), lambda: order.result().key.text)
            else:
                self._order = order.result()
                self.cloud.launches.add(self._order).add_done_callback(lambda answer: settle((made,), answer.result))

        order.add_done_callback(ordered)
        return made

    def _order_at_place(self, key: CreationKey) -> InstanceOrder:
        """What to order at the first of the places; may block."""
        place, image = self.place(), self.image()
        arguments = run_arguments(self.label, place, image)
        return InstanceOrder(key, place, arguments, self._tags, lambda: self.permit_at(place), self.permit)

    def moved(self) -> None:
        self._order = None


# `FleetCreation`: the launch of an instance of which AWS chooses the type (AW-8).

_NO_TEMPLATE: Final = "InvalidLaunchTemplateName.NotFoundException"


class FleetCreation(AwsCreation):
    """With CreateFleet."""

    def settled(self) -> None:
        """AWS chose the zone. The other nodes of the request need not go there."""

    def create_at(self, place: LaunchPlace, key: CreationKey) -> str:
        label = self.label
        template = self.cloud.templates.name_for(label)
        token = token_of([key], place)
        arguments = fleet_arguments(label, self.image().id, template, self._tags, token, spot=place.spot)
        try:
            return self.cloud.client.create_fleet(arguments, self.permit)
        except CloudRefused as error:
            if error.code == _NO_TEMPLATE:
                # Somebody removed it: the next attempt makes it.
                self.cloud.templates.forget()
            raise


# `HostCreation`: the launch of an instance with a dedicated host of its own (AW-5, AW-6).
#
# The creation is put off until the host can be used, and begins each time where it was: the host is allocated, then
# looked at, then there is an instance on it. Where AWS has no room for that the host is released, and another place is
# tried with a host of its own.

#: Until the node names the host, and between two looks at one that is being made ready.
NAMED_SECONDS: Final = 0.1
LOOK_SECONDS: Final = 5.0
#: Looks without an answer in a row, after which the framework must know.
LOST_LOOKS: Final = 3


class HostNotReady(LaunchError):
    """The dedicated host is there, and cannot be used yet."""


class HostCreation(AwsCreation):
    """With AllocateHosts, then RunInstances on the host. From the allocation on the node's record names the host."""

    _host_id: str | None = None
    _allocations = 0
    _lost_looks = 0
    _ready = False

    def adopt(self, external_id: Any) -> None:
        super().adopt(external_id)
        self._host_id = host_of(external_id)
        # Also if there is no instance on it yet: it is released before there is another one.
        self.external_id = external_id if self._host_id else None

    def create(self, key: CreationKey) -> str:
        with nothing_sent():
            if self._host_id is None:
                place = self.place()
                kind, zone, token = place.instance_type, place.zone, token_of([key], place)
                # The token says which call it is: sent again, it allocates no second host.
                self._host_id = self.cloud.client.allocate_host(kind, zone, self._tags, token, self.permit)
                raise HostNotReady(f"dedicated host {self._host_id} is allocated")
            if not self._ready:
                self._look_at(self._host_id)
        place = self.place()
        arguments = run_arguments(self.label, place, self.image(), self._host_id)
        given = with_tags(arguments, self._tags, token_of([key], place))
        return self.cloud.client.run_instances(given, 1, self.permit)[0].id

    def _look_at(self, host_id: str) -> None:
        try:
            host = self.cloud.client.host(host_id)
        except LaunchError as error:
            # One that was just allocated may not be known everywhere.
            self._lost_looks += 1
            if self._lost_looks >= LOST_LOOKS:
                raise
            raise HostNotReady(f"dedicated host {host_id}: {error}") from error
        self._lost_looks = 0
        if host.status in FAILED:
            raise LaunchStatusException(f"{self.where}: the dedicated host {host_id} is {host.status}")
        self._ready = host.status == AVAILABLE
        if not self._ready:
            raise HostNotReady(f"dedicated host {host_id} is {host.status}")

    def put_off(self, error: Exception) -> float | None:
        if self._host_id is None:
            # One that was allocated all the same is found by its tags, when leaks are looked for.
            if not cloud_is_away(error) or self._allocations >= REPEATS:
                return None
            self._allocations += 1
            self.log.warning("The allocation of a host was not answered, it is sent again: %s", error)
            return REPEAT.pause(self._allocations)
        if not isinstance(error, HostNotReady):
            return None
        named, self.external_id = self.external_id is not None, {"host": self._host_id}
        self.log.debug("%s", error)
        return LOOK_SECONDS if named else NAMED_SECONDS

    def moved(self) -> None:
        self._host_id = None
        self._allocations = self._lost_looks = 0
        self._ready = False

    def leftovers(self) -> AwsDeletion:
        """The instance, if there is one, and its host."""
        return AwsDeletion(self.cloud, self.external_id, self.log)

    def stored_id(self, record_id: str) -> dict[str, str]:
        return external_id(record_id, self._host_id)
