# SPDX-License-Identifier: Apache-2.0
"""Instances of one IBM VPC provider, and what the framework asks of its region (reference/driver 9).

First how instances are listed and deleted, then one instance, then its launch (`IbmCreation`), then `IbmAdapter`. What
``nodepool check`` finds out stands at the end.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from nodepool.driver.framework.checks import CheckResult, CloudChecks, Found, room_for
from nodepool.driver.framework.cloud_errors import (
    CloudNoCapacityLater,
    CloudNotFound,
    CloudQuota,
    CloudRefused,
    CloudSetup,
    nothing_sent,
)
from nodepool.driver.framework.fact import Fact, ToldOnce
from nodepool.driver.framework.places import ZonePlaces
from nodepool.driver.ibmvpc import types as t
from nodepool.driver.ibmvpc.client import CALL_SECONDS, IbmVpc
from nodepool.driver.ibmvpc.facts import IbmFacts, IbmPlace, places_of
from nodepool.driver.ibmvpc.floating import IbmFloatingIps
from nodepool.driver.ibmvpc.images import IbmImages
from nodepool.driver.ibmvpc.login import IbmLogin
from nodepool.driver.ibmvpc.types import CAPACITY, PREEMPTED, busy, exists, meaning, texts_of
from nodepool.driver.statemachine import (
    SWEEP_LIST_SECONDS,
    CloudAdapter,
    CloudInstance,
    CloudResource,
    CreationKey,
    DeletionMachine,
    ImageFile,
    Instance,
    InstanceCloud,
    Order,
    PlacedCreation,
    ResourceKind,
    ResourceKinds,
)
from nodepool.driver.statemachine.instance import INSTALLATION_KEY, POOL_KEY, foreign, is_of, node_id_of
from nodepool.exceptions import CapacityException, LaunchError, LaunchStatusException
from nodepool.metrics import reports
from nodepool.model.quota import QuotaInformation

if TYPE_CHECKING:
    from nodepool.driver.framework.images import ListedImage
    from nodepool.driver.ibmvpc.config import IbmLabel, IbmPool, IbmProviderConfig
    from nodepool.driver.ibmvpc.facts import IbmFacts
    from nodepool.driver.ibmvpc.floating import IbmFloatingIps

log = logging.getLogger("nodepool.driver.ibmvpc.machines")

#: So many instances are remembered that were made here.
MANY: Final = 5000


class IbmMachines(InstanceCloud[t.IbmRecord]):
    """What launches and deletions of one provider share. The absence of an instance from lists proves that it is gone:
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
                text = f"Provider {self.provider}: instance {record_id} is gone"
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
    """Deletes an instance, waits until it is gone, and keeps or deletes its floating IP."""

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

    def _bind(self, record: t.IbmRecord) -> t.IbmFloatingIp:
        group = self.cloud.facts.group_id(t.group_of_pool(self.cloud.provider, self.label.pool.name))
        return self.cloud.floating.bind(record.id, group, record.zone, record.interface_id, self.permit)


# `IbmAdapter`: what the framework asks of a region.

#: Connections that are kept: more than a provider has threads.
CONNECTIONS: Final = 32


class IbmAdapter(CloudAdapter):
    """One region. Making it imports requests, and does not ask IBM."""

    counts_ends = True
    creation_class = IbmCreation

    def __init__(self, provider_config: IbmProviderConfig) -> None:
        from nodepool.driver.framework.http.plain_http import PlainHttp

        super().__init__(provider_config)
        self.config = provider_config
        http = PlainHttp(CONNECTIONS)
        login = IbmLogin(provider_config.name, provider_config.credentials_file, http)
        self.client = IbmVpc(provider_config, http, login)
        self.facts = IbmFacts(provider_config, self.client)
        self.floating = IbmFloatingIps(provider_config, self.client)
        self.machines = IbmMachines(provider_config, self.client, self.facts, self.floating)
        self.images = IbmImages(provider_config, self.client, self.facts, http, login)
        self.use(self.machines)
        self._volumes: Fact[list[t.IbmVolume]] = Fact(lambda: list(self.client.volumes()))
        self.resources = ResourceKinds(provider_config.name, self._kinds())

    def stop(self) -> None:
        self.images.close()
        super().stop()

    # -- machines --

    def idInAdvance(self, hostname: str, label: Any, metadata: dict[str, str]) -> str:
        return hostname

    # -- lists --

    def listInstances(self) -> list[Instance]:
        found = super().listInstances()
        # Those that search for leftovers list volumes anew each time.
        installations = self._installations(self._known_volumes())
        for instance in found:
            record = self.machines.inventory.get(instance.external_id)
            if record is not None:
                instance.metadata |= installations.get(record.instance_id, {})
        return found

    def _known_volumes(self) -> list[t.IbmVolume]:
        known = self._volumes.known()
        if known is not None:
            return known
        try:
            return self._volumes.get()
        except CloudRefused:
            # Whose the instances are is not known. `_found_instances` reports it.
            return []

    # -- what may be left over (IV-3); of what an instance uses the instance alone --
    #
    # What is in a resource group of others is theirs.

    def _kinds(self) -> Iterator[ResourceKind[CloudResource]]:
        client, machines = self.client, self.machines
        yield ResourceKind(
            t.INSTANCE, self._found_instances, lambda found: machines.delete_instance(found.id), vital=True
        )
        yield ResourceKind(
            t.FLOATING_IP, self._found_floating_ips, lambda found: self.floating.delete_free(found.id, found.name)
        )
        yield ResourceKind(t.VOLUME, self._found_volumes, lambda found: client.delete("volume", found.id))
        # The bucket has another service, and access policies of its own: it is not listed without need. What the
        # builder has found there is deleted in any case.
        yield ResourceKind(t.IMAGE, self._found_images, self.images.discard, types=(t.OBJECT, t.PART))

    def _found_images(self) -> Iterable[CloudResource]:
        return self.images.resources() if self.config.diskimages else ()

    def _found_instances(self) -> Iterator[CloudResource]:
        # Where volumes cannot be listed, no instance is known to be left over.
        installations = self._installations(self._volumes.get_new())
        for record in self.machines.inventory.all(SWEEP_LIST_SECONDS):
            metadata = {**record.metadata, **installations.get(record.instance_id, {})}
            yield CloudResource(metadata, t.INSTANCE, record.id)

    def _installations(self, volumes: Iterable[t.IbmVolume]) -> dict[str, dict[str, str]]:
        """Metadata that names the installation, by what IBM calls an instance: its boot volume is tagged (D-10)."""
        found: dict[str, dict[str, str]] = {}
        for volume in volumes:
            tagged = t.metadata_of_tags(volume, self.config.name)
            if INSTALLATION_KEY in tagged:
                named = {INSTALLATION_KEY: tagged[INSTALLATION_KEY]}
                found.update(dict.fromkeys(volume.instance_ids, named))
        return found

    def _found_floating_ips(self) -> Iterator[CloudResource]:
        for floating in self.floating.left_over():
            yield CloudResource(floating.metadata, t.FLOATING_IP, floating.id, floating.name)

    def _found_volumes(self) -> Iterator[CloudResource]:
        # Listed just now, with the instances.
        for volume in self._volumes.get(SWEEP_LIST_SECONDS):
            if not volume.used:
                tagged = t.metadata_of_tags(volume, self.config.name)
                yield CloudResource(tagged or t.node_metadata(volume.name, volume.group), t.VOLUME, volume.id)

    def whyLost(self, external_id: Any) -> tuple[str, str] | None:
        if not isinstance(external_id, str):
            return None
        return "not_found", f"instance {external_id} is gone: somebody deleted it, or IBM did"

    # -- quota --

    def getQuotaLimits(self) -> QuotaInformation:
        config = self.config
        # Memory in GiB, as Nodepool 11.0.0 counts it. IBM shows no limits (IV-7).
        return QuotaInformation(
            instances=config.quota_instances, cores=config.quota_cores, ram=config.quota_ram, default=math.inf
        )

    def getQuotaForLabel(self, label: Any) -> QuotaInformation:
        profile = self.facts.profile(label.profiles[0])
        return QuotaInformation(instances=1, cores=profile.cores, ram=profile.ram_gib)

    # -- images --

    def upload(self, file: ImageFile) -> str:
        return self.images.upload(file.image, file.path, file.metadata, file.sha256)

    def deleteImage(self, external_id: str) -> None:
        self.images.delete(external_id)

    def listImages(self) -> Iterator[ListedImage]:
        return self.images.listed()

    # -- what ``nodepool check`` finds out; only reads --

    def preflight(self) -> Iterator[CheckResult]:
        return CloudChecks(self.config.name).all(f"region {self.config.region}", self._check_vpc, self._checks)

    def _check_vpc(self) -> str:
        self.facts.vpc_id()
        return f"login works; the VPC {self.config.vpc} is there"

    def _checks(self, checks: CloudChecks) -> Iterator[CheckResult]:
        for pool in self.config.pools.values():
            yield from checks.about(f"pool {pool.name}", "", partial(self._check_pool, pool))
            for label in pool.labels.values():
                subject, image = f"label {label.name} of pool {pool.name}", label.cloud_image
                of_label: list[Callable[[], Any]] = [partial(self._known, self.facts.profile, label.profiles)]
                of_label += [partial(self._check_image, label)]
                of_label += [partial(self._known, self.facts.key_id, () if image is None else image.ssh_keys)]
                yield from checks.about(subject, "profile, image and keys are there", *of_label)
        yield from checks.about("quota", "", self._check_quota)
        if any(not image.pause for image in self.config.diskimages.values()):
            yield from checks.about("object storage", "", self._check_storage)
            known: Fact[set[str]] = Fact(self.client.operating_systems)
            for disk in self.config.diskimages.values():
                if not disk.pause:
                    good = f"the operating system {disk.operating_system} is known"
                    check = partial(self._check_system, known, disk.operating_system)
                    yield from checks.about(f"diskimage {disk.name}", good, check)

    @staticmethod
    def _known(ask: Callable[[str], object], names: Iterable[str]) -> None:
        for name in names:
            ask(name)

    def _check_pool(self, pool: IbmPool) -> list[Found]:
        found = []
        for subnet in self.facts.subnets(pool):
            if subnet.free is not None and not subnet.free:
                text = f"subnet {subnet.name} has no free addresses"
                found.append(Found(text, "add another subnet, or delete what uses this one"))
            elif subnet.free is not None and subnet.free < pool.max_servers < math.inf and len(pool.subnets) == 1:
                text = f"subnet {subnet.name} has {subnet.free} free addresses, max-servers is {pool.max_servers:g}"
                found.append(Found(text, "use a larger subnet, or lower max-servers", ok=True))
        group = t.group_of_pool(self.config.name, pool.name)
        if group not in self.client.groups():
            text = f"there is no resource group {group}: it is made with the first launch"
            return [*found, Found(text, "make it if the credentials may not", ok=True)]
        return found or [Found(f"subnets and resource group {group} are there", ok=True)]

    def _check_image(self, label: IbmLabel) -> None:
        if label.cloud_image is None:
            return
        reference = self.facts.image(label, None)
        image_id = reference.get("id") or reference["href"].rpartition("/")[2]
        try:
            self.client.image(image_id)
        except CloudNotFound:
            text = f"the region has no image {image_id!r}; correct cloud image {label.cloud_image.name!r}"
            raise CloudSetup(text, code="image_not_found", status=404) from None

    def _check_quota(self) -> Iterator[Found]:
        limit = self.config.quota_instances
        if limit is None:
            remedy = "set quota of the provider to what the account has, or keep max-servers below it"
            yield Found("IBM tells no limits, and quota is not set", remedy, ok=True)
        else:
            yield room_for(self.config.pools.values(), limit, f"quota allows {limit} instances", "correct quota")

    def _check_storage(self) -> Iterator[Found]:
        """Could uploads begin?"""
        bucket = self.images.bucket
        assert bucket is not None
        self.client.storage_instance(self.config.storage_instance or "")
        region = bucket.region()
        next(iter(bucket.keys("npimages_")), None)
        # IBM imports images of buckets near the region only.
        remedy = "" if region == self.config.region else f"take a bucket in {self.config.region} if imports fail"
        yield Found(f"bucket {bucket.name} is in {region}", remedy, ok=True)

    @staticmethod
    def _check_system(known: Fact[set[str]], system: str) -> Iterator[Found]:
        if system not in known.get():
            remedy = "correct operating-system; ibmcloud is operating-systems lists them"
            yield Found(f"no operating system {system!r}", remedy)
