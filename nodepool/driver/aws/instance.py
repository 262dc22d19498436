# SPDX-License-Identifier: Apache-2.0
"""`AwsInstance`: an instance as the framework sees it (AW-10)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nodepool.driver.aws.types import RUNNING, AwsRecord
from nodepool.driver.statemachine import Instance
from nodepool.model.quota import QuotaInformation

if TYPE_CHECKING:
    from nodepool.driver.aws.config import AwsLabel


class AwsInstance(Instance):
    """One instance.

    :param used: what it uses of the quota.
    :param label: of the launch; None = it is only listed.
    :param ends: see `Instance`.
    """

    def __init__(
        self,
        record: AwsRecord,
        region: str,
        used: QuotaInformation,
        label: AwsLabel | None = None,
        ends: tuple[str, str] | None = None,
    ) -> None:
        super().__init__()
        self.ends = ends
        self.ready = record.status == RUNNING
        self.deleted = record.gone
        self.external_id = external_id(record.id, record.host_id)
        self.metadata = dict(record.metadata)
        self.cloud = "AWS"
        self.region = region
        self.az = record.zone
        self.public_ipv4 = record.public_ipv4
        self.public_ipv6 = record.ipv6
        self.private_ipv4 = record.private_ipv4
        self.interface_ip = self.public_ipv4 or self.public_ipv6 or self.private_ipv4
        self.node_properties = {"fleet": label is not None and label.fleet_types is not None, "spot": record.spot}
        self._used = used

    def getQuotaInformation(self) -> QuotaInformation:
        return self._used


def external_id(instance_id: str, host_id: str | None = None) -> dict[str, str]:
    """What the record of a node says of its instance; Nodepool 11 reads it.

    :param host_id: of the dedicated host that goes with it.
    """
    return {"instance": instance_id, **({"host": host_id} if host_id else {})}


def instance_of(stored: Any) -> str | None:
    """The instance of a node, out of its record, where anything may stand; in old ones it is a text (AW-7)."""
    found = stored.get("instance") if isinstance(stored, dict) else stored
    return found if isinstance(found, str) and found else None


def host_of(stored: Any) -> str | None:
    """The dedicated host of a node, likewise."""
    found = stored.get("host") if isinstance(stored, dict) else None
    return found if isinstance(found, str) and found else None
