# SPDX-License-Identifier: Apache-2.0
"""`StoppedInstances`: tells of instances of ours that stopped by themselves, such as spot instances that IBM took."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from nodepool.driver.framework.told_once import ToldOnce
from nodepool.driver.ibmvpc.errors import told
from nodepool.driver.ibmvpc.types import STOPPED, IbmRecord
from nodepool.driver.statemachine import metadata
from nodepool.metrics import instances

log = logging.getLogger("nodepool.driver.ibmvpc.preempted")


class StoppedInstances:
    """Tells of each once. Thread-safe, does not block.

    What the first list shows stopped before: it is not told.

    :param provider: its name.
    """

    def __init__(self, provider: str) -> None:
        self._provider = provider
        self._told = ToldOnce()

    def seen(self, records: Iterable[IbmRecord]) -> None:
        """A list of all instances."""
        stopped = {
            record.instance_id: record
            for record in records
            if record.status in STOPPED and metadata.node_id_of(record.metadata, self._provider)
        }
        for instance_id in self._told.new(stopped):
            self._tell(stopped[instance_id])

    def _tell(self, record: IbmRecord) -> None:
        code = record.reasons[0].code if record.reasons else ""
        instances.report_end(self._provider, code)
        log.warning(
            "Instance %s (%s) of node %s stopped: %s",
            record.id,
            "spot" if record.spot else "regular",
            metadata.node_id_of(record.metadata, self._provider),
            told(record.reasons) or "IBM gives no reason",
        )
