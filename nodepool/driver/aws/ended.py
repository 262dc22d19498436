# SPDX-License-Identifier: Apache-2.0
"""Why an instance ended (``StateReason``), and what that means for its launch."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from nodepool.driver.aws.types import SHUTTING_DOWN, TERMINATED, AwsRecord
from nodepool.driver.framework.cloud_errors import CloudNoCapacityLater, CloudQuota
from nodepool.driver.framework.cloud_texts import one_line
from nodepool.driver.framework.told_once import ToldOnce
from nodepool.driver.statemachine import metadata
from nodepool.exceptions import LaunchStatusException
from nodepool.metrics import instances

log = logging.getLogger("nodepool.driver.aws.ended")

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


#: Somebody wanted it so: Nodepool after use, or a job.
_WANTED: Final = frozenset({"Client.UserInitiatedShutdown", "Client.InstanceInitiatedShutdown"})


def ended(where: str, record: AwsRecord) -> Exception:
    """The error of a launch whose instance ended, in the words of AWS."""
    why = f"{record.reason_code}: {record.reason}" if record.reason_code else "AWS gives no reason"
    text = f"{where}: instance {record.id} is {record.status}: {why}"
    if record.reason_code in _QUOTA_REASONS:
        return CloudQuota(text, code=record.reason_code)
    if record.reason_code in _CAPACITY_REASONS:
        return CloudNoCapacityLater(text)
    return LaunchStatusException(text)


class EndedInstances:
    """Tells of each instance of a provider that ended, once. Thread-safe, does not block.

    Lists show instances for about an hour after their end. What the first list shows ended before: it is not told.

    :param provider: its name.
    """

    def __init__(self, provider: str) -> None:
        self._provider = provider
        self._told = ToldOnce()

    def seen(self, records: Iterable[AwsRecord]) -> None:
        """A list of all instances."""
        over = {
            record.id: record
            for record in records
            if record.status in (SHUTTING_DOWN, TERMINATED) and metadata.node_id_of(record.metadata, self._provider)
        }
        for record_id in self._told.new(over):
            self._tell(over[record_id])

    def _tell(self, record: AwsRecord) -> None:
        instances.report_end(self._provider, record.reason_code)
        why = f"{record.reason_code}: {one_line(record.reason)}" if record.reason_code else "AWS gives no reason"
        node_id = metadata.node_id_of(record.metadata, self._provider)
        if record.reason_code in _WANTED:
            log.debug("Instance %s of node %s ended: %s", record.id, node_id, why)
            return
        kind = "spot" if record.spot else "on demand"
        log.warning("Instance %s (%s) of node %s ended: %s", record.id, kind, node_id, why)
