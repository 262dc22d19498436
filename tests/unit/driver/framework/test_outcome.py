# SPDX-License-Identifier: Apache-2.0
"""nodepool.driver.framework.outcome: what an exception means for a launch (reference/driver 13)."""

from __future__ import annotations

import pytest

from nodepool import exceptions
from nodepool.driver.framework.outcome import launch_outcome


def test_success() -> None:
    assert launch_outcome(None) == ("ready", "ready")


def test_quota_exception_aborts() -> None:
    """L-7: not an attempt that failed."""
    assert launch_outcome(exceptions.QuotaException("full")) == ("aborted", "error.quota")


@pytest.mark.parametrize(
    ("error", "key"),
    [
        (exceptions.CapacityException(), "error.capacity"),
        (exceptions.LaunchNodepoolException(), "error.nodepool"),
        (exceptions.LaunchStatusException(), "error.status"),
        (exceptions.LaunchNetworkException(), "error.network"),
        (exceptions.LaunchKeyscanException(), "error.keyscan"),
        (exceptions.ZKConnectionError(), "error.zksession"),
        (exceptions.TimeoutException(), "error.unknown"),
        (exceptions.ConnectionTimeoutException(), "error.ssh"),
        (exceptions.IPAddTimeoutException(), "error.ipadd"),
        (exceptions.ServerCreateTimeoutException(), "error.servercreatetimeout"),
        (exceptions.RuntimeConfigurationException(), "error.unknown"),
        (OSError(), "error.unknown"),
        (KeyboardInterrupt(), "error.unknown"),
    ],
)
def test_failures(error: BaseException, key: str) -> None:
    """L-9 and the table of exceptions."""
    assert launch_outcome(error) == ("failed", key)


def test_class_of_a_driver() -> None:
    """A driver may name its own statistics key."""

    class NoSubnet(exceptions.CapacityException):
        statsd_key = "error.subnet"

    assert launch_outcome(NoSubnet()) == ("failed", "error.subnet")
