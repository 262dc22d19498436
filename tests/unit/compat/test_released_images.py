# SPDX-License-Identifier: Apache-2.0
"""What drivers see of a lost connection; the rest is tested with a real ZooKeeper."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kazoo.exceptions import ConnectionLoss, KazooException, SessionExpiredError

from nodepool.compat.released_zookeeper import ReleasedImages
from nodepool.exceptions import ZKException
from nodepool.zk.client import ZooKeeperClient

#: So often Kazoo's retry asks here; the real one has no end.
ATTEMPTS = 3


class BrokenKazoo:
    """Has no connection."""

    def __init__(self, error: type[KazooException]) -> None:
        self._error = error
        self.calls: list[str] = []

    def retry(self, call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        for _ in range(ATTEMPTS - 1):
            try:
                return call(*arguments, **options)
            except ConnectionLoss:
                continue
        return call(*arguments, **options)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*_: Any, **__: Any) -> Any:
            self.calls.append(name)
            raise self._error

        return call


def _facade(kazoo: BrokenKazoo) -> ReleasedImages:
    return ReleasedImages(cast("ZooKeeperClient", SimpleNamespace(kazoo=kazoo)), None)


@pytest.mark.parametrize("ask", ["hasBuildRequest", "getBuildRequest", "removeBuildRequest", "getImagePaused"])
def test_lost_session(ask: str) -> None:
    """It is an error of ours, and Kazoo's, too."""
    zk = _facade(BrokenKazoo(SessionExpiredError))
    with pytest.raises(ZKException) as raised:
        getattr(zk, ask)("debian")
    assert isinstance(raised.value, SessionExpiredError)
