# SPDX-License-Identifier: Apache-2.0
"""`AzureInstance`: a VM as the framework sees it (AZ-8)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nodepool.driver.azure.types import SUCCEEDED, VmRecord
from nodepool.driver.statemachine import Instance

if TYPE_CHECKING:
    from nodepool.model.quota import QuotaInformation


class AzureInstance(Instance):
    """One VM.

    :param used: what it uses of the quota.
    :param ends: see `Instance`.
    """

    def __init__(self, record: VmRecord, used: QuotaInformation, ends: tuple[str, str] | None = None) -> None:
        super().__init__()
        self.ends = ends
        addresses = record.addresses
        self.ready = record.status == SUCCEEDED
        self.external_id = record.id
        self.metadata = dict(record.metadata)
        self.cloud = "Azure"
        self.region = record.location
        self.az = record.zone
        self.public_ipv4 = addresses.public_ipv4
        self.public_ipv6 = addresses.public_ipv6
        self.private_ipv4 = addresses.private_ipv4
        self.private_ipv6 = addresses.private_ipv6
        self.interface_ip = self.public_ipv4 or self.public_ipv6 or self.private_ipv4 or self.private_ipv6
        self._used = used

    def getQuotaInformation(self) -> QuotaInformation:
        return self._used
