# SPDX-License-Identifier: Apache-2.0
"""A provider with quota, whose cloud answers from attributes."""

from __future__ import annotations

import math
import threading
from types import SimpleNamespace
from typing import Any, cast

from nodepool.driver.framework.quota_support import QuotaSupport
from nodepool.exceptions import RuntimeConfigurationException
from nodepool.model.node import Node
from nodepool.model.quota import QuotaInformation
from tests.support.wait import DEADLINE_SECONDS

NEEDS = {
    "small": QuotaInformation(cores=2, instances=1, ram=2048),
    "large": QuotaInformation(cores=8, instances=1, ram=8192, **{"volumes": 1, "volume-gb": 80}),
    "free": QuotaInformation(),
}


def make_pool(name: str = "main", **limits: Any) -> Any:
    settings = {"max_servers": math.inf, "ignore_provider_quota": False, **limits}
    return SimpleNamespace(name=name, labels=dict.fromkeys(NEEDS), **settings)


class Manager(QuotaSupport):
    """A provider with a cloud that answers from attributes."""

    def __init__(self, *pools: Any, nodes: tuple[Node, ...] = ()) -> None:
        super().__init__()
        by_name = {pool.name: pool for pool in pools}

        def supported(pool_name: str | None = None) -> set[str]:
            return {label for pool in pools if pool_name in (None, pool.name) for label in pool.labels}

        self.provider = cast(Any, SimpleNamespace(name="cloud", pools=by_name, getSupportedLabels=supported))
        self.zk = cast(Any, SimpleNamespace(cache=None, nodeIterator=lambda: iter(nodes)))
        self.limits = QuotaInformation(cores=20, instances=10, ram=20480, default=math.inf)
        self.unmanaged = QuotaInformation()
        self.error: BaseException | None = None
        self.asked = 0
        #: The cloud answers while this is set.
        self.answers = threading.Event()
        self.answers.set()

    def quotaNeededByLabel(self, label: str, pool: Any) -> QuotaInformation:
        if label not in NEEDS:
            raise RuntimeConfigurationException(f"no flavor for {label}")
        return NEEDS[label].copy()

    def unmanagedQuotaUsed(self) -> QuotaInformation:
        return self.unmanaged.copy()

    def getProviderLimits(self) -> QuotaInformation:
        self.asked += 1
        self.answers.wait(DEADLINE_SECONDS)
        if self.error is not None:
            raise self.error
        return self.limits.copy()


def make_node(state: str = "ready", provider: str = "cloud", pool: str | None = "main", **fields: Any) -> Node:
    node = Node("small", id="0000000001")
    node.state, node.provider, node.pool = state, provider, pool
    for name, value in fields.items():
        setattr(node, name, value)
    return node


def compute(information: QuotaInformation) -> dict[str, float]:
    return information.quota["compute"]
