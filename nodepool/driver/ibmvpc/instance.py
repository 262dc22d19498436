# SPDX-License-Identifier: Apache-2.0
"""`IbmInstance`: an instance as the framework sees it (IV-6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nodepool.driver.ibmvpc.quota import use_of
from nodepool.driver.ibmvpc.types import RUNNING, IbmRecord
from nodepool.driver.statemachine import Instance

if TYPE_CHECKING:
    from nodepool.model.quota import QuotaInformation


class IbmInstance(Instance):
    """One instance.

    :param public_ipv4: address of its floating IP; None = it has none, or it is not known.
    :param ends: see `Instance`.
    """

    def __init__(
        self,
        record: IbmRecord,
        region: str,
        public_ipv4: str | None = None,
        ends: tuple[str, str] | None = None,
    ) -> None:
        super().__init__()
        self.ends = ends
        self.ready = record.status == RUNNING
        self.external_id = record.id
        self.metadata = dict(record.metadata)
        self.cloud = "IBM"
        self.region = region
        self.az = record.zone
        self.public_ipv4 = public_ipv4
        self.private_ipv4 = record.private_ipv4
        self.interface_ip = public_ipv4 or record.private_ipv4
        self._used = use_of(record)

    def getQuotaInformation(self) -> QuotaInformation:
        return self._used
