# SPDX-License-Identifier: Apache-2.0
"""Why an instance ended (``StateReason``), and what that means for its launch."""

from __future__ import annotations

from typing import Final

from nodepool.driver.aws.errors import AwsQuota
from nodepool.driver.aws.types import AwsRecord
from nodepool.exceptions import CapacityException, LaunchStatusException

#: Reasons of states that say more than "it failed".
_QUOTA_REASONS: Final = frozenset({"Client.VolumeLimitExceeded", "Client.InstanceLimitExceeded"})
_CAPACITY_REASONS: Final = frozenset(
    {
        "Server.InsufficientInstanceCapacity",
        "Server.SpotInstanceTermination",
        "Server.SpotInstanceShutdown",
        "Client.SpotInstanceTermination",
    }
)


class NoRoom(LaunchStatusException, CapacityException):
    """The instance ended because AWS has no room for it: nothing is wrong with the label."""

    statsd_key = CapacityException.statsd_key


def ended(where: str, record: AwsRecord) -> Exception:
    """The error of a launch whose instance ended, in the words of AWS."""
    why = f"{record.reason_code}: {record.reason}" if record.reason_code else "AWS gives no reason"
    text = f"{where}: instance {record.id} is {record.status}: {why}"
    if record.reason_code in _QUOTA_REASONS:
        return AwsQuota(text, record.reason_code)
    if record.reason_code in _CAPACITY_REASONS:
        return NoRoom(text)
    return LaunchStatusException(text)
