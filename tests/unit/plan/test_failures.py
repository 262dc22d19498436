# SPDX-License-Identifier: Apache-2.0
"""What an exception of a driver means (reference/driver 13)."""

from __future__ import annotations

import pytest

from nodepool import exceptions
from nodepool.plan.launch import TABLE, Failure, classify, launch_outcome, may_be_retried, meaning


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


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (exceptions.QuotaException(), Failure.QUOTA),
        (exceptions.CapacityException(), Failure.CAPACITY),
        (exceptions.RuntimeConfigurationException(), Failure.CONFIGURATION),
        (exceptions.LaunchNodepoolException(), Failure.SETUP),
        (exceptions.ZKConnectionError(), Failure.ZOOKEEPER),
        (exceptions.CloudUnavailableException(), Failure.CLOUD),
        (ConnectionResetError(), Failure.CLOUD),
        (TimeoutError(), Failure.CLOUD),
        (exceptions.LaunchStatusException(), Failure.INSTANCE),
        (exceptions.LaunchKeyscanException(), Failure.INSTANCE),
        (exceptions.ServerCreateTimeoutException(), Failure.INSTANCE),
        (KeyError("id"), Failure.UNKNOWN),
    ],
)
def test_kinds(error: Exception, kind: Failure) -> None:
    """Capacity, configuration and an unreachable cloud are told apart."""
    assert classify(error) is kind


def test_every_row_is_reached() -> None:
    """No row hides behind one for a base of its class; each kind says the same about retries in all its rows."""
    for row in TABLE:
        assert meaning(row.error()) is row
    for kind in Failure:
        assert {row.retry for row in TABLE if row.kind is kind} == {may_be_retried(kind)}


def test_what_needs_a_traceback() -> None:
    """An error that the driver says the meaning of does not."""
    assert not meaning(KeyError("id")).expected
    assert all(row.expected for row in TABLE if row.kind is not Failure.UNKNOWN)
