# SPDX-License-Identifier: Apache-2.0
"""Instances of one AWS provider: how they are listed, made and ended.

First lists and deletions, then one instance and why it ended, then its launch: the usual one, one through a fleet, and
one on a dedicated host of its own. Then what seldom changes in a region (`AwsFacts`), the places where an instance may
be launched, and limits of the account, with what labels and instances use of them (AW-11, AW-14).
"""

from __future__ import annotations

import contextlib
import logging
import math
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final

from nodepool.driver import statemachine
from nodepool.driver.aws import launches, types
from nodepool.driver.aws.client import CONNECT_SECONDS, READ_SECONDS, TERMINATE, Ec2, where
from nodepool.driver.aws.config import AwsCloudImage, AwsLabel, AwsProviderConfig
from nodepool.driver.framework import cloud_errors
from nodepool.driver.framework.fact import Fact, Repeats, ToldOnce
from nodepool.driver.framework.quota_support import ZonePlaces
from nodepool.driver.framework.rate import RateLimiter
from nodepool.driver.statemachine.adapter import Log
from nodepool.driver.statemachine.creation import REPEAT, REPEATS
from nodepool.driver.statemachine.instance import cloud_is_away
from nodepool.driver.statemachine.inventory import Batches
from nodepool.exceptions import LaunchError, LaunchStatusException, RuntimeConfigurationException
from nodepool.guard import settle
from nodepool.metrics import reports
from nodepool.model.node import QuotaInformation
from nodepool.model.request import NodeRequest

#: States of an instance that runs no more.
ENDING: Final = (types.SHUTTING_DOWN, types.TERMINATED)
#: Instances that one call ends (AW-15), and so long at least until the next call, for which more gather.
TERMINATED_A_CALL: Final = 100
TERMINATE_SECONDS: Final = 0.25


class AwsInstances(statemachine.InstanceCloud[types.AwsRecord]):
    """What launches and deletions of one provider share."""

    # What an answer has reported may be missing in lists for some seconds.
    lag_seconds = 5.0
    new_may_be_unknown = True
    resumes_launches = True
    call_seconds = CONNECT_SECONDS + READ_SECONDS

    def __init__(self, config: AwsProviderConfig, client: Ec2, facts: AwsFacts, limits: AccountLimits) -> None:
        super().__init__(config.name)
        self.config = config
        self.client = client
        self.templates = launches.LaunchTemplates(config, client)
        self.facts = facts
        self.limits = limits
        self.places = Places(facts)
        #: Instances that the latest list shows as terminated, by id: they say why. Replaced as a whole.
        self.terminated: Mapping[str, types.AwsRecord] = {}
        #: Of the region, by id, as far as the limits count them. One thread lists, and uses it.
        self._volumes: Mapping[str, types.AwsVolume] = {}
        #: Instances whose end was logged: lists show them for about an hour.
        self._ended = ToldOnce()
        self._spacing = RateLimiter(config.name, 1 / TERMINATE_SECONDS, sleep=client.transport.sleep)
        self._terminations: Batches[str] = Batches(self._terminate, self.others, TERMINATED_A_CALL)
        self.batch_tags = launches.BatchTags(config.name, client, self.others)
        self.launches = launches.LaunchBatches(client, self.creators, self.batch_tags.made)

    def list_instances(self, since: str | None) -> list[types.AwsRecord]:
        records = self._described()
        self.terminated = {record.id: record for record in records if record.gone}
        self.batch_tags.seen(records)
        over = {
            record.id: record
            for record in records
            if record.status in ENDING and statemachine.instance.node_id_of(record.metadata, self.provider)
        }
        for record_id in self._ended.new(over):
            self._log_end(over[record_id])
        return records

    def _log_end(self, record: types.AwsRecord) -> None:
        reports.report_instance_end(self.provider, record.reason_code)
        why, node_id = reason_of(record), statemachine.instance.node_id_of(record.metadata, self.provider)
        if record.reason_code in _WANTED:
            log.debug("Instance %s of node %s ended: %s", record.id, node_id, why)
            return
        kind = "spot" if record.spot else "on demand"
        log.warning("Instance %s (%s) of node %s ended: %s", record.id, kind, node_id, why)

    def _described(self, **wanted: Any) -> list[types.AwsRecord]:
        """All of the region, unless filters say which."""
        return types.records_of(self.client.listed("DescribeInstances", "Reservations", **wanted))

    def get_instance(self, record_id: str) -> types.AwsRecord:
        # An id that is not known (yet) is an error in a list of ids, but not in a filter.
        found = self._described(**where("instance-id", record_id))
        if not found:
            raise types.AwsNotFound(f"there is no instance {record_id}", code="InvalidInstanceID.NotFound")
        return found[0]

    def record_id(self, external_id: Any) -> str | None:
        return instance_of(external_id)

    def why_ended(self, record: types.AwsRecord) -> tuple[str, str] | None:
        if record.status not in ENDING:
            return None
        return record.reason_code or record.status, f"instance {record.id} is {record.status}: {reason_of(record)}"

    def learn(self, records: Sequence[types.AwsRecord]) -> None:
        for name in {record.type for record in records if record.type}:
            # That of an instance of others may be one that AWS does not show to all.
            with contextlib.suppress(RuntimeConfigurationException):
                self.facts.instance_type(name)
        volumes = self.client.volumes() if self.limits.counts_volumes else ()
        self._volumes = {volume.id: volume for volume in volumes}

    def instance(self, record: types.AwsRecord, label: AwsLabel | None = None) -> statemachine.CloudInstance:
        """See AW-10. :param label: of the launch; None = it is only listed."""
        volumes = self._volumes if label is None else {}
        return statemachine.CloudInstance(
            record,
            self.limits.use_of(record, volumes, label),
            external_id=external_id(record.id, record.host_id),
            ready=record.status == types.RUNNING,
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
        for error in self.terminate(lambda: [record_id]).values():
            raise error

    def begin_deletion(self, record_id: str) -> Future[None]:
        return self._terminations.add(record_id)

    def _terminate(self, take: Callable[[], list[str]]) -> Mapping[str, Exception]:
        self._spacing.wait()
        return self.terminate(take)

    def terminate(self, take: Callable[[], list[str]]) -> dict[str, Exception]:
        """Order the end of instances in one call; returns the errors of those that are refused. Blocks.

        :param take: asked for the ids when the call's turn has come.
        """
        ids: list[str] = []

        def arguments() -> dict[str, Any]:
            ids[:] = take()
            return {"InstanceIds": ids}

        try:
            self.client.transport.call("ec2", TERMINATE, "TerminateInstances", arguments)
        except cloud_errors.CloudRefused as error:
            return self._one_refused(ids, error)
        return {}

    def _one_refused(self, ids: list[str], error: cloud_errors.CloudRefused) -> dict[str, Exception]:
        """One id that AWS does not take makes it refuse all: the others are sent again without it."""
        if len(ids) == 1:
            return {ids[0]: error}
        named = types.instance_ids_in(str(error)).intersection(ids)
        if isinstance(error, types.AwsNotFound) and named and len(named) < len(ids):
            rest = [instance_id for instance_id in ids if instance_id not in named]
            return {**dict.fromkeys(named, error), **self.terminate(lambda: rest)}
        half = len(ids) // 2
        return {**self.terminate(lambda: ids[:half]), **self.terminate(lambda: ids[half:])}

    def close(self) -> None:
        self.client.transport.close()


class AwsDeletion(statemachine.DeletionMachine[types.AwsRecord]):
    """Ends an instance and waits until it has ended; then its dedicated host is given back, if it has one.

    AWS keeps a host of macOS for 24 hours. The node does not wait for that: the search for leaks releases the host.
    """

    cloud: AwsInstances

    def __init__(self, cloud: AwsInstances, external_id: Any, log: Log) -> None:
        super().__init__(cloud, external_id, log)
        self._host_id = host_of(external_id)

    def begun(self, record: types.AwsRecord) -> bool:
        return record.status in ENDING

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


#: Someone wanted it so: Nodepool after use, or a job.
_WANTED: Final = frozenset({"Client.UserInitiatedShutdown", "Client.InstanceInitiatedShutdown"})


def reason_of(record: types.AwsRecord) -> str:
    """In the words of AWS."""
    return (
        f"{record.reason_code}: {cloud_errors.one_line(record.reason)}" if record.reason_code else "AWS gives no reason"
    )


def ended(where: str, record: types.AwsRecord) -> Exception:
    """The error of a launch whose instance ended, in the words of AWS."""
    text = f"{where}: instance {record.id} is {record.status}: {reason_of(record)}"
    if record.reason_code in _QUOTA_REASONS:
        return cloud_errors.CloudQuota(text, code=record.reason_code)
    if record.reason_code in _CAPACITY_REASONS:
        return cloud_errors.CloudNoCapacityLater(text)
    return LaunchStatusException(text)


# `AwsCreation`: the launch of one instance; `InstanceCreation`: that of the usual ones.


class AwsCreation(statemachine.PlacedCreation[types.AwsRecord, types.LaunchPlace]):
    """Has an instance made and waits until it runs. AWS knows a creation again by its client token."""

    idempotent = True
    deletion_class = AwsDeletion
    no_capacity = "InsufficientInstanceCapacity"

    cloud: AwsInstances

    def __init__(self, cloud: AwsInstances, order: statemachine.Order) -> None:
        super().__init__(cloud, order)
        # Once: with other values than before AWS would not know it again.
        self._tags = launches.instance_tags(order.hostname, self.label, self.metadata, order.request, order.log)

    @classmethod
    def of(cls, cloud: Any, order: statemachine.Order) -> AwsCreation:
        label = order.label
        machine = FleetCreation if label.fleet_types else HostCreation if label.dedicated_host else InstanceCreation
        return machine(cloud, order)

    def find_places(self) -> list[types.LaunchPlace]:
        return self.cloud.places.of_label(self.label, self.order.request, self.order.az)

    def image(self) -> types.AwsImage:
        """What it is made of; may block."""
        return self.cloud.facts.image(self.order.image or self.cloud.facts.cloud_image_id(self.label))

    def forget(self) -> None:
        self.cloud.facts.forget(self.label)

    def stored_id(self, record_id: str) -> dict[str, str]:
        return external_id(record_id)

    def lets_go_on(self, record: types.AwsRecord | None) -> bool:
        return record is None or record.status != types.PENDING

    def seen(self, record: types.AwsRecord) -> statemachine.Instance | bool:
        if record.status in ENDING:
            raise ended(self.where, record)
        if record.status != types.RUNNING:
            return False
        self.settled()
        return self.cloud.instance(record, self.label)

    def gone(self) -> Exception:
        record = self.cloud.terminated.get(self.record_id or "")
        return super().gone() if record is None else ended(self.where, record)


class InstanceCreation(AwsCreation):
    """With RunInstances; those that have to wait go together."""

    #: What was ordered at the present place; None = nothing yet.
    _order: launches.InstanceOrder | None = None

    def begin_creation(self, key: statemachine.CreationKey) -> Future[str]:
        if self._order is not None:
            # There was no answer.
            return self.cloud.launches.again(self._order)
        made: Future[str] = Future()
        # What is to be made may have to be looked up first.
        order: Future[launches.InstanceOrder] = self.cloud.creators.submit(self._order_at_place, key)

        def ordered(order: Future[launches.InstanceOrder]) -> None:
            if order.cancelled() or order.exception() is not None:
                settle((made,), lambda: order.result().key.text)
            else:
                self._order = order.result()
                self.cloud.launches.add(self._order).add_done_callback(lambda answer: settle((made,), answer.result))

        order.add_done_callback(ordered)
        return made

    def _order_at_place(self, key: statemachine.CreationKey) -> launches.InstanceOrder:
        """What to order at the first of the places; may block."""
        place, image = self.place(), self.image()
        arguments = launches.run_arguments(self.label, place, image)
        return launches.InstanceOrder(key, place, arguments, self._tags, lambda: self.permit_at(place), self.permit)

    def moved(self) -> None:
        self._order = None


# `FleetCreation`: the launch of an instance of which AWS chooses the type (AW-8).

_NO_TEMPLATE: Final = "InvalidLaunchTemplateName.NotFoundException"


class FleetCreation(AwsCreation):
    """With CreateFleet."""

    def settled(self) -> None:
        """AWS chose the zone. The other nodes of the request need not go there."""

    def create_at(self, place: types.LaunchPlace, key: statemachine.CreationKey) -> str:
        label = self.label
        template = self.cloud.templates.name_for(label)
        token = launches.token_of([key], place)
        arguments = launches.fleet_arguments(label, self.image().id, template, self._tags, token, spot=place.spot)
        try:
            return self.cloud.client.create_fleet(arguments, self.permit)
        except cloud_errors.CloudRefused as error:
            if error.code == _NO_TEMPLATE:
                # Someone removed it: the next attempt makes it.
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

    def create(self, key: statemachine.CreationKey) -> str:
        with cloud_errors.nothing_sent():
            if self._host_id is None:
                place = self.place()
                kind, zone, token = place.instance_type, place.zone, launches.token_of([key], place)
                # The token says which call it is: sent again, it allocates no second host.
                self._host_id = self.cloud.client.allocate_host(kind, zone, self._tags, token, self.permit)
                raise HostNotReady(f"dedicated host {self._host_id} is allocated")
            if not self._ready:
                self._look_at(self._host_id)
        place = self.place()
        arguments = launches.run_arguments(self.label, place, self.image(), self._host_id)
        given = launches.with_tags(arguments, self._tags, launches.token_of([key], place))
        return launches.run_instances(self.cloud.client, given, 1, self.permit)[0].id

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
        if host.status in types.FAILED:
            raise LaunchStatusException(f"{self.where}: the dedicated host {host_id} is {host.status}")
        self._ready = host.status == types.AVAILABLE
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


# What seldom changes in a region: images, types of instances and subnets.

#: How long the newest image of some filters is remembered.
FILTERED_SECONDS: Final = 300.0
#: The devices of an AMI and the size of a type never change.
FOR_EVER: Final = float("inf")
_UNKNOWN_TYPE: Final = ("InvalidInstanceType", "InvalidParameterValue")


class AwsFacts:
    """Thread-safe: what changes a table is one operation."""

    def __init__(self, client: Ec2) -> None:
        self._client = client
        self._images: dict[str, Fact[types.AwsImage]] = {}
        self._filtered: dict[str, Fact[str]] = {}
        self._types: dict[str, Fact[types.InstanceType]] = {}
        self._zones: dict[str, Fact[str]] = {}
        #: Zones of subnets that instances get which name none, by name. Empty = AWS does not say it.
        self.default_zones: Fact[list[str]] = Fact(self._zones_with_default_subnets)

    def image(self, image_id: str) -> types.AwsImage:
        """An AMI; may block. Raises what the client raises."""
        return self._images.setdefault(image_id, Fact(lambda: self._client.image(image_id))).get(FOR_EVER)

    def cloud_image_id(self, label: AwsLabel) -> str:
        """The AMI of a label's cloud image; may block.

        :raises AwsNotFound: its filters find none.
        """
        image = label.cloud_image
        assert image is not None
        if image.image_id:
            return image.image_id
        return self._filtered.setdefault(image.name, Fact(lambda: self._newest(image))).get(FILTERED_SECONDS)

    def forget(self, label: AwsLabel) -> None:
        """AWS refused a launch: look up again what it was made of."""
        if label.cloud_image is not None:
            self._filtered.pop(label.cloud_image.name, None)
        self._images = {}

    def instance_type(self, name: str) -> types.InstanceType:
        """A type; may block.

        :raises RuntimeConfigurationException: there is none of the name in the region.
        """
        try:
            return self._types.setdefault(name, Fact(lambda: self._client.instance_type(name))).get(FOR_EVER)
        except cloud_errors.CloudRefused as error:
            if error.code not in _UNKNOWN_TYPE:
                raise
            region = self._client.transport.region
            text = f"the region {region} has no instance type {name!r}; correct instance-type"
            raise RuntimeConfigurationException(text) from None

    def known_type(self, name: str) -> types.InstanceType | None:
        """The same if it was asked for before. Does not block."""
        fact = self._types.get(name)
        return None if fact is None else fact.known()

    def zone_of_subnet(self, subnet_id: str) -> str:
        """The zone that a subnet is in; may block. Where AWS does not say it, the subnet is a zone of its own."""
        fact = self._zones.setdefault(subnet_id, Fact(lambda: self._zone_of(subnet_id)))
        zone = fact.get(FOR_EVER)
        return zone if zone != subnet_id else fact.get()

    def _zone_of(self, subnet_id: str) -> str:
        try:
            found = self._client.subnets([subnet_id]).get(subnet_id)
        except LaunchError as error:
            log.warning("The zone of subnet %s is not known: %s", subnet_id, error)
            found = None
        return subnet_id if found is None else found.zone

    def _zones_with_default_subnets(self) -> list[str]:
        try:
            return sorted({subnet.zone for subnet in self._client.subnets(()).values()})
        except LaunchError as error:
            log.warning("The zones of the default VPC are not known: %s", error)
            return []

    def _newest(self, image: AwsCloudImage) -> str:
        filters = [{"Name": given.name, "Values": given.values} for given in image.image_filters]
        found = [candidate for candidate in self._client.images(Filters=filters) if candidate.status == "available"]
        if not found:
            told = ", ".join(map(repr, image.image_filters))
            raise types.AwsNotFound(
                f"no image has {told}; correct image-filters of cloud image {image.name!r}",
                code="InvalidAMIID.NotFound",
            )
        return max(found, key=lambda candidate: (candidate.created, candidate.id)).id


# Where AWS may have room for an instance: the combinations of type and subnet or zone that a label allows.


def places_of(label: AwsLabel, zones: Sequence[str] = ()) -> list[types.LaunchPlace]:
    """All that a label allows, in the order of its types, and then of the subnets or zones of its pool. What is on
    demand only because there is no spot instance comes last.

    :param zones: for a pool that names neither subnets nor zones; empty = AWS chooses.
    """
    pool = label.pool
    # With one subnet there may be its zone, too.
    zone = pool.availability_zones[0] if pool.availability_zones else None
    where: list[tuple[str | None, str | None]] = [(subnet, zone) for subnet in pool.subnet_ids]
    where = where or [(None, name) for name in pool.availability_zones or zones] or [(None, None)]
    kinds = label.spot_kinds
    if label.fleet_types:
        # Types and subnets are all given to AWS, which chooses.
        return [types.LaunchPlace(f"fleet of {', '.join(label.fleet_types)}", None, None, spot) for spot in kinds]
    return [types.LaunchPlace(name, *one, spot) for spot in kinds for name in label.instance_types for one in where]


class Places(ZonePlaces[types.LaunchPlace]):
    """The same for AWS, which may have to be asked for the zone of a subnet: all but `rests` may block.

    :param facts: knows the zones of subnets.
    """

    def __init__(self, facts: AwsFacts) -> None:
        super().__init__()
        self._facts = facts

    def of_label(
        self, label: AwsLabel, request: NodeRequest | None = None, az: str | None = None
    ) -> list[types.LaunchPlace]:
        """The places of a label; see `to_try`."""
        if label.fleet_types or (az is None and not self.concerns(request)):
            return self.awake(places_of(label))
        return self.to_try(places_of(label, self._zones(label, request)), request, az)

    def _zones(self, label: AwsLabel, request: NodeRequest | None) -> list[str]:
        """For a pool that names neither subnets nor zones; another one first for each request."""
        zones = [] if label.pool.subnet_ids or label.pool.availability_zones else self._facts.default_zones.get()
        first = zlib.crc32(request.key.encode()) % len(zones) if zones and request is not None else 0
        return zones[first:] + zones[:first]

    def zone_of(self, place: types.LaunchPlace) -> str:
        if place.subnet_id is not None and place.zone is None:
            return self._facts.zone_of_subnet(place.subnet_id)
        return super().zone_of(place)


# Limits of the account, and what labels and instances use of them (AW-11, AW-14).

#: Service Quotas takes a few calls in ten seconds, and limits seldom change.
LIMITS_SECONDS: Final = 3600.0
#: When it is asked again after an error.
AGAIN_SECONDS: Final = 300.0
SERVICES: Final = ("ec2", "ebs")


class AccountLimits:
    """Limits and use of one provider. Thread-safe. All but `use_of` may block."""

    def __init__(self, config: AwsProviderConfig, client: Ec2, facts: AwsFacts) -> None:
        self._config = config
        self._client = client
        self._facts = facts
        self._asked: Fact[None] = Fact(self._ask)
        #: What Service Quotas stated last. Replaced as a whole.
        self._codes = types.QuotaCodes()
        #: Does Service Quotas answer?
        self.answers = False
        self._repeats = Repeats(LIMITS_SECONDS)

    # -- limits --

    def limits(self) -> QuotaInformation:
        """Of the codes that labels of the configuration need, as far as AWS has reported them."""
        codes = self._known()
        labels = [label for pool in self._config.pools.values() for label in pool.labels.values()]
        needed = {code for label in labels for code in self._codes_of(label, codes) if code}
        found = {
            code: codes.values[code] * (types.GIB_A_TIB if code in types.STORAGE else 1)
            for code in needed
            if code in codes.values
        }
        unknown = sorted(needed - found.keys()) if codes.values else []
        if unknown and self._repeats.worth_saying("unknown"):
            log.warning("Provider %s: Service Quotas has no limits for %s", self._config.name, ", ".join(unknown))
        return QuotaInformation(default=math.inf, **found)

    def _codes_of(self, label: AwsLabel, codes: types.QuotaCodes) -> Iterable[str | None]:
        if label.dedicated_host:
            yield from map(codes.of_host, label.instance_types)
            return
        for name in label.fleet_types or label.instance_types:
            for spot in label.spot_kinds:
                yield codes.of_instance(name, spot=spot)
        if label.volume_type:
            yield from types.VOLUMES.get(label.volume_type, ())

    # -- use --

    def need_of(self, label: AwsLabel) -> QuotaInformation:
        """What a node of a label uses, if it is of the first of its types.

        :raises RuntimeConfigurationException: its type is not known in the region.
        """
        codes = self._known()
        if label.fleet_types:
            # Which type it will be, AWS decides.
            return QuotaInformation(instances=1)
        found = self._facts.instance_type(label.instance_types[0])
        host = label.dedicated_host
        code = codes.of_host(found.name) if host else codes.of_instance(found.name, spot=label.use_spot)
        if code is None and self._repeats.worth_saying(found.name):
            log.warning("Provider %s: no quota is known for instances of %s", self._config.name, found.name)
        return _use(found, code, self._volume_need(label), host)

    def _volume_need(self, label: AwsLabel) -> dict[str, float]:
        """Of the root volume, if the label says what it is."""
        if not label.volume_type:
            return {}
        size = label.volume_size
        if size is None and label.cloud_image is not None:
            devices = self._facts.image(self._facts.cloud_image_id(label)).devices
            size = devices[0][1].get("VolumeSize") if devices else None
        return _volume_use(label.volume_type, size or 0, label.iops or 0)

    def use_of(
        self,
        record: types.AwsRecord,
        volumes: Mapping[str, types.AwsVolume] | None = None,
        label: AwsLabel | None = None,
    ) -> QuotaInformation:
        """What an instance uses, as far as its type is known. Does not block.

        :param volumes: of the region, by id.
        :param label: of the launch, which says what its volume is.
        """
        codes = self._codes
        found = self._facts.known_type(record.type)
        if found is None:
            return QuotaInformation(instances=1)
        used: dict[str, float] = {}
        known = volumes or {}
        for volume in [known[volume_id] for volume_id in record.volume_ids if volume_id in known]:
            for name, amount in _volume_use(volume.type, volume.size_gib, volume.iops).items():
                used[name] = used.get(name, 0) + amount
        if label is not None and label.volume_type and not used:
            used = _volume_use(label.volume_type, label.volume_size or 0, label.iops or 0)
        host = record.host_id is not None
        code = codes.of_host(record.type) if host else codes.of_instance(record.type, spot=record.spot)
        return _use(found, code, used, host)

    @property
    def counts_volumes(self) -> bool:
        """Does any label count volumes? Else no one needs to know those of others."""
        pools = self._config.pools.values()
        return any(label.volume_type for pool in pools for label in pool.labels.values())

    # -- Service Quotas --

    def _known(self) -> types.QuotaCodes:
        """What it stated at most an hour ago, or last.

        Nothing must wait for Service Quotas: while it has never answered there are no limits. What AWS then refuses
        waits all the same (AW-16).
        """
        self._asked.get(LIMITS_SECONDS if self.answers else AGAIN_SECONDS)
        return self._codes

    def _ask(self) -> None:
        """Called by one thread at a time. Does not raise: who asks goes on with what was known before."""
        text = "Provider %s: the limits of the account are not known: %s; allow servicequotas:ListServiceQuotas"
        with self._repeats.logged("asked", log.warning, text, self._config.name):
            self.answers = False
            self._codes = types.QuotaCodes([quota for service in SERVICES for quota in self._client.quotas(service)])
            self.answers = True


def _use(found: types.InstanceType, code: str | None, more: Mapping[str, float], host: bool) -> QuotaInformation:
    """:param host: it has a dedicated host, and that counts in place of the instance."""
    own = {code: 1} if host else {"cores": found.cores, "ram": found.ram_mib, code: found.vcpus}
    return QuotaInformation(instances=1, **more, **{name: value for name, value in own.items() if name})


def _volume_use(kind: str, size_gib: float, iops: float) -> dict[str, float]:
    storage, rate = types.VOLUMES.get(kind, (None, None))
    used = {storage: size_gib, rate: iops}
    return {code: amount for code, amount in used.items() if code and amount}
