# SPDX-License-Identifier: Apache-2.0
"""What drivers written for 11.0.0 catch is what is raised."""

from __future__ import annotations

import pytest

from nodepool.exceptions import ZKConnectionError, ZKLockException
from nodepool.zk import exceptions


@pytest.mark.parametrize(
    ("raised", "caught"),
    [
        (ZKLockException, exceptions.LockException),
        (ZKConnectionError, exceptions.NoClientException),
        (ZKLockException, exceptions.NodepoolZooKeeperException),
    ],
)
def test_other_names(raised: type[Exception], caught: type[Exception]) -> None:
    assert issubclass(raised, caught)
