# SPDX-License-Identifier: Apache-2.0
"""`GceInstance`: an instance as the framework sees it (GC-6)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nodepool.driver.gce.types import RUNNING, GceRecord
from nodepool.driver.statemachine import Instance

if TYPE_CHECKING:
    from nodepool.model.quota import QuotaInformation


class GceInstance(Instance):
    """One instance.

    :param external_id: as nodes have it.
    :param used: what it uses of the quota.
    :param ends: see `Instance`.
    """

    def __init__(
        self, record: GceRecord, external_id: Any, used: QuotaInformation, ends: tuple[str, str] | None = None
    ) -> None:
        super().__init__()
        self.ends = ends
        self.ready = record.status == RUNNING
        self.external_id = external_id
        self.metadata = dict(record.metadata)
        self.cloud = "Google"
        self.az = record.zone
        self.region = record.zone.rpartition("-")[0]
        self.public_ipv4 = record.public_ipv4
        self.private_ipv4 = record.private_ipv4
        self.interface_ip = self.public_ipv4 or self.private_ipv4
        self._used = used

    def getQuotaInformation(self) -> QuotaInformation:
        return self._used
