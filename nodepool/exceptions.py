# SPDX-License-Identifier: Apache-2.0
"""Exceptions that drivers raise and the launcher understands (reference/driver 13).

``statsd_key`` of a class is the result under which a launch that ended with it is counted.
"""

from __future__ import annotations

from typing import ClassVar


class NotFound(Exception):
    """The resource does not exist. While deleting, this is success."""


class LaunchError(Exception):
    """Base of errors that make a launch attempt fail."""

    statsd_key: ClassVar[str] = "error.unknown"


class QuotaException(LaunchError):
    """The cloud stated that a quota is used up: the launch is aborted and tried again later."""

    statsd_key = "error.quota"


class LaunchHeldException(LaunchError):
    """What the launch waits for is out of service: the launch is aborted and tried again later. It is not counted."""


class CapacityException(LaunchError):
    """The cloud has no capacity for this instance: a failed attempt."""

    statsd_key = "error.capacity"


class LaunchNodepoolException(LaunchError):
    """The setup does not fit together, e.g. an image vanished: a failed attempt."""

    statsd_key = "error.nodepool"


class LaunchStatusException(LaunchError):
    """The instance went into an error state: a failed attempt."""

    statsd_key = "error.status"


class LaunchNetworkException(LaunchError):
    """The instance has no usable address: a failed attempt."""

    statsd_key = "error.network"


class LaunchKeyscanException(LaunchError):
    """The instance did not answer or its host keys could not be read: a failed attempt."""

    statsd_key = "error.keyscan"


class CloudUnavailableException(LaunchError):
    """The cloud's API cannot be reached, or answers with errors of its own (5xx, 429).

    A failed attempt, but when it goes on the circuit breaker opens, and launches are aborted, not failed.
    """

    #: May the cloud have got the call, and carried it out?
    maybe_done = True
    #: Has the driver looked for what the call may have made, more than once and for some seconds? Then the framework
    #: does it only once more.
    searched = False


class RuntimeConfigurationException(Exception):
    """The configuration of a label can never work in this provider."""


class TimeoutException(LaunchError):
    """Something took too long. Logged without a traceback."""


class ConnectionTimeoutException(TimeoutException):
    statsd_key = "error.ssh"


class IPAddTimeoutException(TimeoutException):
    statsd_key = "error.ipadd"


class ServerCreateTimeoutException(TimeoutException):
    statsd_key = "error.servercreatetimeout"


class ServerDeleteTimeoutException(TimeoutException):
    statsd_key = "error.serverdeletetimeout"


class ImageCreateException(TimeoutException):
    statsd_key = "error.imagetimeout"


class BuilderError(RuntimeError):
    """An image build failed."""


class BuilderInvalidCommandError(BuilderError):
    """The image build command cannot be run."""


class DibFailedError(BuilderError):
    """diskimage-builder reported an error."""


class ZKException(Exception):
    """A ZooKeeper operation failed."""


class ZKLockException(ZKException):
    """A lock could not be taken, or is not held."""


class ZKLockTimeout(ZKLockException, TimeoutException):
    """A lock was not free in time. Drivers written for 11.0.0 catch the one or the other."""


class ZKConflict(ZKException):
    """A fenced write was refused: the znode changed, vanished, or our lock is lost. Nothing was written."""


class ZKTooLarge(ZKException, ValueError):
    """A write is larger than ZooKeeper takes. Nothing was sent. As other values that cannot be stored: ValueError."""


class ZKConnectionError(ZKException):
    """ZooKeeper could not be reached, or the session was lost; the outcome of a write is unknown."""


class ConfigError(Exception):
    """The configuration was refused. The text lists every problem with file and line."""
