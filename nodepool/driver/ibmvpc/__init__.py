# SPDX-License-Identifier: Apache-2.0
"""The driver of IBM VPC, with IBM's libraries for its calls and logins.

Where to begin to read:

* ``config.py``: what stands in the configuration; ``login.py``: credentials and tokens;
* ``client.py``: all calls that are made; ``types.py``: what IBM says, also what can go wrong, and names;
* ``facts.py``: what seldom changes, places, limits, and the body of a launch;
* ``floating.py``: floating IPs, which are used again;
* ``images.py``: uploads of images;
* ``machines.py``: how instances are listed, launched and deleted.

Here all is put together for the framework in `nodepool.driver.statemachine`, with ``nodepool check``.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, Final

from nodepool.driver.framework.cloud_errors import (
    CheckResult,
    CloudChecks,
    CloudRefused,
    CloudSetup,
    Found,
    or_none,
    room_for,
)
from nodepool.driver.framework.fact import Fact
from nodepool.driver.ibmvpc import types as t
from nodepool.driver.ibmvpc.client import IbmVpc
from nodepool.driver.ibmvpc.config import IbmLabel, IbmPool, IbmProviderConfig
from nodepool.driver.ibmvpc.facts import IbmFacts
from nodepool.driver.ibmvpc.floating import IbmFloatingIps
from nodepool.driver.ibmvpc.images import IbmImages
from nodepool.driver.ibmvpc.login import IbmLogin
from nodepool.driver.ibmvpc.machines import IbmCreation, IbmMachines
from nodepool.driver.statemachine import (
    SWEEP_LIST_SECONDS,
    CloudAdapter,
    CloudResource,
    Instance,
    ResourceKind,
    ResourceKinds,
)
from nodepool.driver.statemachine.instance import INSTALLATION_KEY
from nodepool.driver.statemachine.provider import CloudDriver
from nodepool.model.node import QuotaInformation

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
        self.images: IbmImages = IbmImages(provider_config, self.client, self.facts, http, login)
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
        if self._volumes.known() is None:
            # If it is refused, whose the instances are is not known. `_found_instances` reports it.
            with contextlib.suppress(CloudRefused):
                self._volumes.get()
        installations = self._installations(self._volumes.known() or ())
        for instance in found:
            record = self.machines.inventory.get(instance.external_id)
            if record is not None:
                instance.metadata |= installations.get(record.instance_id, {})
        return found

    # -- what may be left over (IV-3); of what an instance uses the instance alone --
    #
    # What is in a resource group of others is theirs.

    def _kinds(self) -> Iterator[ResourceKind[CloudResource]]:
        client = self.client
        yield self.instance_kind()
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
        return "not_found", f"instance {external_id} does not exist any more: it was deleted by others, or by IBM"

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

    # -- what ``nodepool check`` finds out; only reads --

    def preflight(self) -> Iterator[CheckResult]:
        return CloudChecks(self.config.name).all(f"region {self.config.region}", self._check_vpc, self._checks)

    def _check_vpc(self) -> str:
        self.facts.vpc_id()
        return f"login works; the VPC {self.config.vpc} is there"

    def _checks(self, checks: CloudChecks) -> Iterator[CheckResult]:
        for pool in self.config.pools.values():
            yield from checks.about(f"pool {pool.name}", "", partial(self._check_pool, pool))
            good = "profile, cloud image and keys are there, as far as it names them"
            yield from checks.labels(pool, good, self._check_profiles, self._check_image, self._check_keys)
        yield from checks.about("quota", "", self._check_quota)
        if any(not image.pause for image in self.config.diskimages.values()):
            yield from checks.about("object storage", "", self._check_storage)
            known: Fact[set[str]] = Fact(self.client.operating_systems)
            for disk in self.config.diskimages.values():
                if not disk.pause:
                    good = f"the operating system {disk.operating_system} is known"
                    check = partial(self._check_system, known, disk.operating_system)
                    yield from checks.about(f"diskimage {disk.name}", good, check)

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

    def _check_profiles(self, label: IbmLabel) -> None:
        for name in label.profiles:
            self.facts.profile(name)

    def _check_keys(self, label: IbmLabel) -> None:
        for name in label.cloud_image.ssh_keys if label.cloud_image else ():
            self.facts.key_id(name)

    def _check_image(self, label: IbmLabel) -> None:
        if label.cloud_image is None:
            return
        reference = self.facts.image(label, None)
        image_id = reference.get("id") or reference["href"].rpartition("/")[2]
        if or_none(lambda: self.client.image(image_id)) is None:
            text = f"the region has no image {image_id!r}; correct cloud image {label.cloud_image.name!r}"
            raise CloudSetup(text, code="image_not_found", status=404)

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


class IbmVpcDriver(CloudDriver):
    """``driver: ibmvpc``"""

    name = "ibmvpc"
    libraries = ("ibm_cloud_sdk_core", "ibm_vpc")
    config_class = IbmProviderConfig
    adapter_class = IbmAdapter
