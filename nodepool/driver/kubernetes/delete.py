# SPDX-License-Identifier: Apache-2.0
"""`KubeDeletion`: the deletion of a namespace, a project or a pod, until it is really gone."""

from __future__ import annotations

from typing import Any, Final

from nodepool.driver.kubernetes.cloud import KubeCloud
from nodepool.driver.kubernetes.errors import NotYet
from nodepool.driver.kubernetes.records import KubeRecord
from nodepool.driver.statemachine import DeletionMachine
from nodepool.exceptions import LaunchError

#: A namespace that is still there after so long is reported, with what holds it.
STUCK_SECONDS: Final = 60.0


class KubeDeletion(DeletionMachine[KubeRecord]):
    """Its record stays until the API says that it is gone."""

    cloud: KubeCloud
    _reported: str = ""

    def busy(self, error: LaunchError) -> bool:
        return isinstance(error, NotYet)

    def begun(self, record: KubeRecord) -> bool:
        return record.terminating

    def advance(self) -> Any:
        result = super().advance()
        if self.complete and self.external_id is not None:
            self.cloud.over(self.external_id)
        record = None if self.complete or self.external_id is None else self.cloud.inventory.get(self.external_id)
        stuck = record is not None and record.terminating and self.clock() - self.start_time >= STUCK_SECONDS
        if record is not None and stuck and record.status != self._reported:
            self._reported = record.status
            self.log.warning("%s is still there, %s", record.id, record.status)
        return result
