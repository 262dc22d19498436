# SPDX-License-Identifier: Apache-2.0
"""Operations of Service Quotas."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from nodepool.testing.aws.core import ACCOUNT
from nodepool.testing.aws.quota_list import QUOTAS, SimulatedQuota
from nodepool.testing.simulator.messages import ApiError, Json
from nodepool.testing.simulator.pages import page

if TYPE_CHECKING:
    from nodepool.testing.aws.cloud import Region


class QuotaOperations:
    """:ivar operations: handlers by name of operation."""

    def __init__(self, cloud: Region) -> None:
        self.cloud = cloud
        self.operations: dict[str, Callable[[Json], Json]] = {
            "ListServiceQuotas": self._list,
            "GetServiceQuota": self._get,
        }

    def _list(self, arguments: Json) -> Json:
        found = self._of(arguments.get("ServiceCode", ""))
        limit = min(arguments.get("MaxResults", 100), 100, self.cloud.core.knobs.page_limit)
        try:
            part, token = page(found, lambda quota: quota.code, arguments.get("NextToken"), limit)
        except ValueError:
            raise ApiError(400, "The token is invalid", "InvalidPaginationTokenException") from None
        content: Json = {"Quotas": [self._shown(quota) for quota in part]}
        return content if token is None else content | {"NextToken": token}

    def _get(self, arguments: Json) -> Json:
        found = [quota for quota in self._of(arguments["ServiceCode"]) if quota.code == arguments["QuotaCode"]]
        if not found:
            raise ApiError(
                404, "The request failed because the specified quota does not exist.", "NoSuchResourceException"
            )
        return {"Quota": self._shown(found[0])}

    def _of(self, service: str) -> list[SimulatedQuota]:
        found = [quota for quota in QUOTAS if quota.service == service and quota.code in self.cloud.core.knobs.quotas]
        if not found:
            text = "The request failed because the specified service does not exist."
            raise ApiError(404, text, "NoSuchResourceException")
        return found

    def _shown(self, quota: SimulatedQuota) -> Json:
        return {
            "ServiceCode": quota.service,
            "QuotaCode": quota.code,
            "QuotaName": quota.name,
            "QuotaArn": f"arn:aws:servicequotas:{self.cloud.core.region}:{ACCOUNT}:{quota.service}/{quota.code}",
            "Value": self.cloud.core.knobs.quotas[quota.code],
            "Unit": "None",
            "Adjustable": True,
            "GlobalQuota": False,
        }
