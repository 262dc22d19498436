# SPDX-License-Identifier: Apache-2.0
"""What drivers written for 11.0.0 catch is what is raised."""

from __future__ import annotations

import pytest
from kazoo.exceptions import ConnectionLoss, SessionExpiredError

from nodepool.exceptions import ZKConnectionError, ZKLockException
from nodepool.zk import exceptions
from nodepool.zk.transactions import translate


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


def test_lost_session() -> None:
    """Drivers written for 11.0.0 catch Kazoo's error, all others ours; a lost connection is no lost session."""
    error = translate(SessionExpiredError())
    assert isinstance(error, SessionExpiredError)
    assert isinstance(error, ZKConnectionError)
    assert not isinstance(translate(ConnectionLoss()), SessionExpiredError)
