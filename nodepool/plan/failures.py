# SPDX-License-Identifier: Apache-2.0
"""What an exception of a driver means: one table for everything that a driver is asked to do (reference/driver 13)."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

from nodepool.exceptions import (
    CapacityException,
    CloudUnavailableException,
    LaunchError,
    LaunchHeldException,
    LaunchNodepoolException,
    QuotaException,
    RuntimeConfigurationException,
    ZKConnectionError,
    ZKException,
)
from nodepool.model import states


class Failure(enum.Enum):
    """Kinds of failures, by what the launcher does about them."""

    #: The cloud says that a quota is used up.
    QUOTA = "quota"
    #: An operator has taken out of service what the launch waits for.
    HELD = "held"
    #: The cloud has no room for such an instance.
    CAPACITY = "capacity"
    #: The cloud's API does not answer, or only with errors of its own.
    CLOUD = "cloud"
    #: The configuration of the label can never work.
    CONFIGURATION = "configuration"
    #: Something that the launch needs is not there, e.g. the image: it was not even tried.
    SETUP = "setup"
    #: ZooKeeper did not do what we wanted.
    ZOOKEEPER = "zookeeper"
    #: Something is wrong with this instance.
    INSTANCE = "instance"
    #: An error that the driver has not told us the meaning of.
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Meaning:
    """A row of the table.

    :param error: the class of the exception; the first row that fits counts.
    :param node_state: final state of a node whose launch ends with it.
    :param statsd_key: result under which such a launch is counted; None = what the exception says, else
        ``error.unknown``.
    :param retry: may another attempt of the same launch help?
    """

    error: type[BaseException]
    kind: Failure
    node_state: str
    statsd_key: str | None
    retry: bool

    @property
    def expected(self) -> bool:
        """Does its text say all, so that a traceback would only hide it?"""
        return self.kind is not Failure.UNKNOWN


#: Special ones first. `OSError`: connections that fail, the errors of sockets, ssl and requests.
TABLE: Final = (
    Meaning(QuotaException, Failure.QUOTA, states.ABORTED, None, retry=False),
    Meaning(LaunchHeldException, Failure.HELD, states.ABORTED, None, retry=False),
    Meaning(CapacityException, Failure.CAPACITY, states.FAILED, None, retry=True),
    Meaning(RuntimeConfigurationException, Failure.CONFIGURATION, states.FAILED, None, retry=False),
    Meaning(LaunchNodepoolException, Failure.SETUP, states.FAILED, None, retry=True),
    Meaning(ZKConnectionError, Failure.ZOOKEEPER, states.FAILED, "error.zksession", retry=False),
    Meaning(ZKException, Failure.ZOOKEEPER, states.FAILED, None, retry=False),
    Meaning(CloudUnavailableException, Failure.CLOUD, states.FAILED, None, retry=True),
    Meaning(LaunchError, Failure.INSTANCE, states.FAILED, None, retry=True),
    Meaning(OSError, Failure.CLOUD, states.FAILED, None, retry=True),
    Meaning(BaseException, Failure.UNKNOWN, states.FAILED, None, retry=True),
)


def meaning(error: BaseException) -> Meaning:
    """The row of an exception."""
    return next(row for row in TABLE if isinstance(error, row.error))


def classify(error: BaseException) -> Failure:
    """The kind of an error that a driver raised."""
    return meaning(error).kind


def may_be_retried(kind: Failure) -> bool:
    """May another attempt of the same launch help?"""
    return any(row.retry for row in TABLE if row.kind is kind)


def launch_outcome(error: BaseException | None) -> tuple[str, str]:
    """Final node state and statistics key of a launch.

    :param error: what ended it; None = success.
    """
    if error is None:
        return states.READY, "ready"
    row = meaning(error)
    if row.statsd_key is not None:
        return row.node_state, row.statsd_key
    return row.node_state, str(getattr(error, "statsd_key", "error.unknown"))
