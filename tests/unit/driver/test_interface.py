# SPDX-License-Identifier: Apache-2.0
"""What a provider need not say itself (reference/driver 2)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from nodepool.driver.interface import Provider
from nodepool.driver.utils import QuotaInformation, QuotaSupport


class Least(Provider, QuotaSupport):
    """What 11.0.0 demanded; its constructor passes on what it was given."""

    def __init__(self, provider: Any, *args: Any) -> None:
        super().__init__(provider, *args)
        self.provider = provider

    def start(self, zk_conn: Any) -> None: ...
    def stop(self) -> None: ...
    def join(self) -> None: ...
    def labelReady(self, name: Any) -> bool:
        return True

    def cleanupNode(self, node_id: Any) -> None: ...
    def waitForNodeCleanup(self, node_id: Any) -> None: ...
    def cleanupLeakedResources(self) -> None: ...
    def getRequestHandler(self, poolworker: Any, request: Any) -> Any: ...
    def quotaNeededByLabel(self, label: str, pool: Any) -> QuotaInformation:
        return QuotaInformation(instances=1)

    def unmanagedQuotaUsed(self) -> QuotaInformation:
        return QuotaInformation()

    def getProviderLimits(self) -> QuotaInformation:
        return QuotaInformation()


def test_name() -> None:
    """That of its section, unless it has one of its own."""
    provider = Least(SimpleNamespace(name="cloud"))
    assert provider.name == "cloud"
    provider.name = "mine"
    assert provider.name == "mine"


def test_list_nodes() -> None:
    """Need not be there: leaks are not looked for through it."""
    with pytest.raises(NotImplementedError):
        Least(SimpleNamespace(name="cloud")).listNodes()
