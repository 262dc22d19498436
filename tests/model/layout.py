# SPDX-License-Identifier: Apache-2.0
"""What is configured in the simulated world, and how it may change."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from nodepool.config.objects import Config, Label
from nodepool.driver.metastatic.config import MetastaticProviderConfig
from nodepool.driver.static.config import StaticProviderConfig

if TYPE_CHECKING:
    from tests.model.cloud import ModelCloud

CLOUD: Final = "one"
LAB: Final = "lab"
SLICES: Final = "slices"

#: How long a node on a backing node stays ready for nobody.
MAX_READY_SECONDS: Final = 20
#: How long an empty backing node is kept.
GRACE_SECONDS: Final = 3
#: Labels of the first pool, the second one, ...
POOL_LABELS: Final = (("small",), ("small", "large"), ("large",))
#: The same where requests are served by several pools: no pool has all labels of one.
MIXED_LABELS: Final = (("small",), ("large",), ("large",))
#: Labels and slots of the first host, the second one, ...
HOSTS: Final = ((("metal",), 2), (("metal", "heavy"), 1), (("heavy",), 2))
#: What a request may ask for.
KINDS: Final = (("small",), ("large",), ("metal",), ("heavy",), ("slice",), ("small", "large"), ("metal", "heavy"))
MIXED_KINDS: Final = (("small", "large"), ("metal", "small"), ("large", "metal", "small"), *KINDS)


@dataclass(frozen=True)
class PoolLayout:
    name: str
    labels: tuple[str, ...]
    max_servers: int


@dataclass(frozen=True)
class HostLayout:
    name: str
    labels: tuple[str, ...]
    slots: int


@dataclass(frozen=True)
class Layout:
    """One content of the configuration file.

    :param slices: nodes on each backing node of the metastatic provider, which takes small ones; 0 = there is none.
    :param quarantine_after: failed checks in a row that quarantine a host; 0 = none do.
    :param mixed: may nodes of large and metal come from another pool than the rest?
    :param cloud_limit: what the cloud says that it allows, in all pools together. It does not see to that itself.
    """

    pools: tuple[PoolLayout, ...]
    hosts: tuple[HostLayout, ...]
    min_ready: int
    tenant_limit: int | None
    cloud_limit: int | None
    slices: int
    quarantine_after: int
    mixed: bool = False

    @property
    def limit(self) -> float:
        """Of servers, in all pools together."""
        return math.inf if self.cloud_limit is None else self.cloud_limit

    def slots(self) -> set[tuple[str, int]]:
        return {(host.name, slot) for host in self.hosts for slot in range(host.slots)}

    def registrations(self) -> int:
        """Pools that a launcher registers."""
        return len(self.pools) + bool(self.hosts) + bool(self.slices)

    def can_serve(self, labels: Sequence[str]) -> bool:
        """Is there a pool that has room for these nodes when nothing else runs?"""
        for pool in self.pools:
            if set(labels) <= set(pool.labels) and len(labels) <= min(pool.max_servers, self.limit):
                return True
        if self.slices and list(labels) == ["slice"]:
            # Not for more: requests for several slices can each hold one that others need, until launch-timeout.
            return self.can_serve(["small"])
        return self._hosts_can_serve(list(labels), list(self.hosts)) or (self.mixed and self._can_mix(labels))

    def _can_mix(self, labels: Sequence[str]) -> bool:
        """The same, of several pools together."""
        launched = [label for label in labels if label in ("small", "large")]
        rest = [label for label in labels if label not in launched]
        parts: list[list[str]] = [[label] * launched.count(label) for label in sorted(set(launched))]
        parts += [rest] if rest else []
        limits = [limit for limit in (self.limit, self.tenant_limit) if limit is not None]
        alone = dataclasses.replace(self, mixed=False)
        return len(parts) > 1 and len(launched) <= min(limits) and all(alone.can_serve(part) for part in parts)

    def _hosts_can_serve(self, labels: list[str], hosts: list[HostLayout]) -> bool:
        if not labels:
            return True
        for index, host in enumerate(hosts):
            if host.slots and labels[0] in host.labels:
                left = [*hosts[:index], dataclasses.replace(host, slots=host.slots - 1), *hosts[index + 1 :]]
                if self._hosts_can_serve(labels[1:], left):
                    return True
        return False

    def wish(self, number: int) -> list[str]:
        """Labels of a request that can be served, another one for each number."""
        kinds = [kind for kind in (MIXED_KINDS if self.mixed else KINDS) if self.can_serve(kind)]
        kind = list(kinds[number // 2 % len(kinds)])
        more = kind * 2
        return more if number % 2 and len(kind) == 1 and self.can_serve(more) else kind

    def changed(self, number: int) -> Layout:
        """Another configuration: something went, or is smaller or larger."""
        changes: list[Callable[[], Layout]] = [
            lambda: self._with_pools(self.pools[:-1]),
            lambda: self._with_pools(self.pools[1:]),
            lambda: self._with_pools(tuple(dataclasses.replace(pool, labels=pool.labels[:-1]) for pool in self.pools)),
            lambda: self._with_pools(tuple(dataclasses.replace(pool, max_servers=1) for pool in self.pools)),
            lambda: self._with_pools(
                tuple(dataclasses.replace(pool, max_servers=pool.max_servers + 1) for pool in self.pools)
            ),
            lambda: dataclasses.replace(self, min_ready=0 if self.min_ready else 1),
            lambda: dataclasses.replace(self, hosts=self.hosts[1:]),
            lambda: dataclasses.replace(
                self, hosts=tuple(dataclasses.replace(host, slots=host.slots % 2 + 1) for host in self.hosts)
            ),
            lambda: dataclasses.replace(
                self, hosts=tuple(dataclasses.replace(host, labels=("metal",)) for host in self.hosts)
            ),
        ]
        return changes[number % (len(changes) if self.hosts else 6)]()

    def _with_pools(self, pools: tuple[PoolLayout, ...]) -> Layout:
        return dataclasses.replace(self, pools=pools)

    def config(self, cloud: ModelCloud) -> Config:
        """The configuration as a launcher loads it."""
        config = Config()
        config.labels = {name: Label(name) for name in ("small", "large", "metal", "heavy", "slice")}
        config.labels["small"].min_ready = self.min_ready
        for name in ("large", "metal"):
            config.labels[name].mixed_nodesets = self.mixed
        # Nodes that nobody wants any more, on a backing node that others need, would stay for ever.
        config.labels["slice"].max_ready_age = MAX_READY_SECONDS
        if self.tenant_limit is not None:
            config.tenant_resource_limits = {"tenant": {"instances": self.tenant_limit}}
        if self.pools:
            provider = cloud.provider_config(CLOUD, self._cloud_pools())
            provider.load(config)
            config.providers[CLOUD] = provider
        if self.hosts:
            lab = StaticProviderConfig(self._lab_section())
            lab.load(config)
            config.providers[LAB] = lab
        if self.slices:
            slices = MetastaticProviderConfig(self._slices_section())
            slices.load(config)
            config.providers[SLICES] = slices
        return config

    def _cloud_pools(self) -> list[dict[str, Any]]:
        return [
            {"name": pool.name, "max-servers": pool.max_servers, "labels": [{"name": name} for name in pool.labels]}
            for pool in self.pools
        ]

    def _slices_section(self) -> dict[str, Any]:
        label = {
            "name": "slice",
            "backing-label": "small",
            "max-parallel-jobs": self.slices,
            "grace-time": GRACE_SECONDS,
        }
        return {"name": SLICES, "driver": "metastatic", "pools": [{"name": "slices", "labels": [label]}]}

    def _lab_section(self) -> dict[str, Any]:
        nodes = [
            {"name": host.name, "labels": list(host.labels), "max-parallel-jobs": host.slots} for host in self.hosts
        ]
        pools = [{"name": "racks", "nodes": nodes}]
        return {"name": LAB, "driver": "static", "quarantine-after": self.quarantine_after, "pools": pools}


def make_layout(
    *,
    pools: int,
    max_servers: int,
    hosts: int,
    min_ready: int,
    tenant_limit: int | None,
    cloud_limit: int | None,
    slices: int,
    quarantine_after: int,
    mixed: bool,
) -> Layout:
    names, pool_labels = ("main", "second", "third"), MIXED_LABELS if mixed else POOL_LABELS
    return Layout(
        tuple(PoolLayout(name, pool_labels[number], max_servers) for number, name in enumerate(names[:pools])),
        tuple(HostLayout(f"host{number}", *HOSTS[number]) for number in range(hosts)),
        min_ready,
        tenant_limit,
        cloud_limit,
        slices,
        quarantine_after,
        mixed,
    )
