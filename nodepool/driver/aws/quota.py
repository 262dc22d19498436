# SPDX-License-Identifier: Apache-2.0
"""Limits of the account, and what labels and instances use of them (AW-11, AW-14)."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from nodepool.driver.aws import types
from nodepool.driver.aws.types import AccountQuota, QuotaCodes
from nodepool.driver.framework.fact import Fact, Repeats
from nodepool.exceptions import LaunchError
from nodepool.model.node import QuotaInformation

if TYPE_CHECKING:
    from nodepool.driver.aws.client import Ec2
    from nodepool.driver.aws.config import AwsLabel, AwsProviderConfig
    from nodepool.driver.aws.facts import AwsFacts
    from nodepool.driver.aws.types import AwsRecord, AwsVolume, InstanceType

log = logging.getLogger("nodepool.driver.aws.quota")

#: Service Quotas takes a few calls in ten seconds, and limits seldom change.
LIMITS_SECONDS: Final = 3600.0
#: When it is asked again after an error.
AGAIN_SECONDS: Final = 300.0
SERVICES: Final = ("ec2", "ebs")


class _Account(NamedTuple):
    """What Service Quotas said.

    :param quotas: by code.
    :param codes: made of them.
    :param answered: False: it did not, and these were known before.
    """

    quotas: Mapping[str, AccountQuota]
    codes: QuotaCodes
    answered: bool


class AccountLimits:
    """Limits and use of one provider. Thread-safe. All but `use_of` may block."""

    def __init__(self, config: AwsProviderConfig, client: Ec2, facts: AwsFacts) -> None:
        self._config = config
        self._client = client
        self._facts = facts
        self._account: Fact[_Account] = Fact(self._ask)
        #: Replaced as a whole.
        self._last = _Account({}, QuotaCodes(), answered=False)
        self._repeats = Repeats(LIMITS_SECONDS)

    # -- limits --

    def limits(self) -> QuotaInformation:
        """Of the codes that labels of the configuration need, as far as AWS has told them."""
        quotas = self._known().quotas
        needed: set[str] = set()
        for pool in self._config.pools.values():
            for label in pool.labels.values():
                needed |= {code for code in self._codes_of(label) if code}
        found = {
            code: quotas[code].value * (types.GIB_A_TIB if code in types.STORAGE else 1)
            for code in needed
            if code in quotas
        }
        unknown = sorted(needed - found.keys()) if quotas else []
        if unknown and self._repeats.worth_saying("unknown"):
            log.warning("Provider %s: Service Quotas has no limits for %s", self._config.name, ", ".join(unknown))
        return QuotaInformation(default=math.inf, **found)

    def told(self) -> dict[str, float] | None:
        """The same by code; None = Service Quotas does not answer."""
        known = self.limits()
        return {code: limit for code, limit in known.get_resources().items() if code in self._last.quotas} or (
            {} if self._last.answered else None
        )

    def _codes_of(self, label: AwsLabel) -> Iterable[str | None]:
        codes = self._known().codes
        if label.dedicated_host:
            yield from map(codes.of_host, label.instance_types)
            return
        for name in label.fleet_types or label.instance_types:
            yield codes.of_instance(name, spot=label.use_spot)
            if label.use_spot and label.spot_fallback:
                yield codes.of_instance(name, spot=False)
        if label.volume_type:
            yield from types.VOLUMES.get(label.volume_type, ())

    # -- use --

    def need_of(self, label: AwsLabel) -> QuotaInformation:
        """What a node of a label uses, if it is of the first of its types.

        :raises RuntimeConfigurationException: its type is not known in the region.
        """
        codes = self._known().codes
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
        codes = self._last.codes
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

    def _known(self) -> _Account:
        """What it said at most an hour ago, or last.

        Nothing must wait for Service Quotas: while it has never answered there are no limits. What AWS then refuses
        waits all the same (AW-16).
        """
        return self._account.get(LIMITS_SECONDS if self._last.answered else AGAIN_SECONDS)

    def _ask(self) -> _Account:
        """Called by one thread at a time. Does not raise: whoever asks goes on with what was known before."""
        try:
            quotas = [quota for service in SERVICES for quota in self._client.quotas(service)]
        except LaunchError as error:
            if self._repeats.worth_saying("asked"):
                log.warning(
                    "Provider %s: the limits of the account are not known: %s; allow servicequotas:ListServiceQuotas",
                    *(self._config.name, error),
                )
            self._last = self._last._replace(answered=False)
        else:
            self._repeats.over("asked")
            self._last = _Account({quota.code: quota for quota in quotas}, QuotaCodes(quotas), answered=True)
        return self._last


def _use(found: InstanceType, code: str | None, more: Mapping[str, float], host: bool) -> QuotaInformation:
    """:param host: it has a dedicated host, and that counts in place of the instance."""
    own = {code: 1} if host else {"cores": found.cores, "ram": found.ram_mib, code: found.vcpus}
    return QuotaInformation(instances=1, **more, **{name: value for name, value in own.items() if name})


def _volume_use(kind: str, size_gib: float, iops: float) -> dict[str, float]:
    storage, rate = types.VOLUMES.get(kind, (None, None))
    used = {storage: size_gib, rate: iops}
    return {code: amount for code, amount in used.items() if code and amount}
