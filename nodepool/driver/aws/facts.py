# SPDX-License-Identifier: Apache-2.0
"""What seldom changes in a region of AWS.

First images, types of instances and subnets (`AwsFacts`), then the places where an instance may be launched. Then
limits of the account, and what labels and instances use of them (AW-11, AW-14).
"""

from __future__ import annotations

import logging
import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from nodepool.driver.aws import types
from nodepool.driver.aws.client import Ec2
from nodepool.driver.aws.config import AwsCloudImage, AwsLabel, AwsProviderConfig
from nodepool.driver.aws.types import AwsImage, AwsNotFound, AwsRecord, AwsVolume, InstanceType, QuotaCodes
from nodepool.driver.framework.cloud_errors import CloudRefused
from nodepool.driver.framework.fact import Fact, Repeats
from nodepool.driver.framework.quota_support import ZonePlaces
from nodepool.exceptions import LaunchError, RuntimeConfigurationException
from nodepool.model.node import QuotaInformation
from nodepool.model.request import NodeRequest

#: How long the newest image of some filters is remembered.
FILTERED_SECONDS: Final = 300.0
#: The devices of an AMI and the size of a type never change.
FOR_EVER: Final = float("inf")
_UNKNOWN_TYPE: Final = ("InvalidInstanceType", "InvalidParameterValue")


class AwsFacts:
    """Thread-safe: what changes a table is one operation."""

    def __init__(self, client: Ec2) -> None:
        self._client = client
        self._images: dict[str, Fact[AwsImage]] = {}
        self._filtered: dict[str, Fact[str]] = {}
        self._types: dict[str, Fact[InstanceType]] = {}
        self._zones: dict[str, Fact[str]] = {}
        #: Zones of subnets that instances get which name none, by name. Empty = AWS does not say it.
        self.default_zones: Fact[list[str]] = Fact(self._zones_with_default_subnets)

    def image(self, image_id: str) -> AwsImage:
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

    def instance_type(self, name: str) -> InstanceType:
        """A type; may block.

        :raises RuntimeConfigurationException: there is none of the name in the region.
        """
        try:
            return self._types.setdefault(name, Fact(lambda: self._client.instance_type(name))).get(FOR_EVER)
        except CloudRefused as error:
            if error.code not in _UNKNOWN_TYPE:
                raise
            region = self._client.transport.region
            text = f"the region {region} has no instance type {name!r}; correct instance-type"
            raise RuntimeConfigurationException(text) from None

    def known_type(self, name: str) -> InstanceType | None:
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
            raise AwsNotFound(
                f"no image has {told}; correct image-filters of cloud image {image.name!r}",
                code="InvalidAMIID.NotFound",
            )
        return max(found, key=lambda candidate: (candidate.created, candidate.id)).id


# Where AWS may have room for an instance: the combinations of type and subnet or zone that a label allows.

log = logging.getLogger("nodepool.driver.aws.facts")


class LaunchPlace(NamedTuple):
    """One combination. ``subnet_id`` or ``zone`` or neither."""

    instance_type: str
    subnet_id: str | None
    zone: str | None
    spot: bool

    def __str__(self) -> str:
        where = self.subnet_id or self.zone or "any zone"
        return f"{self.instance_type}{' (spot)' if self.spot else ''} in {where}"


def places_of(label: AwsLabel, zones: Sequence[str] = ()) -> list[LaunchPlace]:
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
        # Types and subnets are all told to AWS, which chooses.
        return [LaunchPlace(f"fleet of {', '.join(label.fleet_types)}", None, None, spot) for spot in kinds]
    return [LaunchPlace(name, *one, spot) for spot in kinds for name in label.instance_types for one in where]


class Places(ZonePlaces[LaunchPlace]):
    """The same for AWS, which may have to be asked for the zone of a subnet: all but `rests` may block.

    :param facts: knows the zones of subnets.
    """

    def __init__(self, facts: AwsFacts) -> None:
        super().__init__()
        self._facts = facts

    def of_label(self, label: AwsLabel, request: NodeRequest | None = None, az: str | None = None) -> list[LaunchPlace]:
        """The places of a label; see `to_try`."""
        if label.fleet_types or (az is None and not self.concerns(request)):
            return self.awake(places_of(label))
        return self.to_try(places_of(label, self._zones(label, request)), request, az)

    def _zones(self, label: AwsLabel, request: NodeRequest | None) -> list[str]:
        """For a pool that names neither subnets nor zones; another one first for each request."""
        zones = [] if label.pool.subnet_ids or label.pool.availability_zones else self._facts.default_zones.get()
        first = zlib.crc32(request.key.encode()) % len(zones) if zones and request is not None else 0
        return zones[first:] + zones[:first]

    def zone_of(self, place: LaunchPlace) -> str:
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
        #: What Service Quotas said last. Replaced as a whole.
        self._codes = QuotaCodes()
        #: Does Service Quotas answer?
        self.answers = False
        self._repeats = Repeats(LIMITS_SECONDS)

    # -- limits --

    def limits(self) -> QuotaInformation:
        """Of the codes that labels of the configuration need, as far as AWS has told them."""
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

    def _codes_of(self, label: AwsLabel, codes: QuotaCodes) -> Iterable[str | None]:
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
        self, record: AwsRecord, volumes: Mapping[str, AwsVolume] | None = None, label: AwsLabel | None = None
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
        """Does any label count volumes? Else nobody needs to know those of others."""
        pools = self._config.pools.values()
        return any(label.volume_type for pool in pools for label in pool.labels.values())

    # -- Service Quotas --

    def _known(self) -> QuotaCodes:
        """What it said at most an hour ago, or last.

        Nothing must wait for Service Quotas: while it has never answered there are no limits. What AWS then refuses
        waits all the same (AW-16).
        """
        self._asked.get(LIMITS_SECONDS if self.answers else AGAIN_SECONDS)
        return self._codes

    def _ask(self) -> None:
        """Called by one thread at a time. Does not raise: whoever asks goes on with what was known before."""
        text = "Provider %s: the limits of the account are not known: %s; allow servicequotas:ListServiceQuotas"
        with self._repeats.logged("asked", log.warning, text, self._config.name):
            self.answers = False
            self._codes = QuotaCodes([quota for service in SERVICES for quota in self._client.quotas(service)])
            self.answers = True


def _use(found: InstanceType, code: str | None, more: Mapping[str, float], host: bool) -> QuotaInformation:
    """:param host: it has a dedicated host, and that counts in place of the instance."""
    own = {code: 1} if host else {"cores": found.cores, "ram": found.ram_mib, code: found.vcpus}
    return QuotaInformation(instances=1, **more, **{name: value for name, value in own.items() if name})


def _volume_use(kind: str, size_gib: float, iops: float) -> dict[str, float]:
    storage, rate = types.VOLUMES.get(kind, (None, None))
    used = {storage: size_gib, rate: iops}
    return {code: amount for code, amount in used.items() if code and amount}
