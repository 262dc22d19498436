# SPDX-License-Identifier: Apache-2.0
"""What an exception means for a launch (reference/driver 13)."""

from __future__ import annotations

from nodepool.exceptions import LaunchError, QuotaException, ZKConnectionError
from nodepool.model import states


def launch_outcome(error: BaseException | None) -> tuple[str, str]:
    """Final node state and statistics key of a launch.

    :param error: what ended it; None = success.
    """
    if error is None:
        return states.READY, "ready"
    if isinstance(error, QuotaException):
        return states.ABORTED, error.statsd_key
    if isinstance(error, LaunchError):
        return states.FAILED, error.statsd_key
    if isinstance(error, ZKConnectionError):
        return states.FAILED, "error.zksession"
    return states.FAILED, "error.unknown"
