# SPDX-License-Identifier: Apache-2.0
"""Operations of Service Quotas."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from simulators.aws.core import ACCOUNT
from simulators.aws.quota_list import QUOTAS, SimulatedQuota
from simulators.base.messages import ApiError, Json
from simulators.base.pages import page

if TYPE_CHECKING:
    from simulators.aws.cloud import Region

#: The quota of elastic IPs: every other time that it is shown AWS does not find out its value.
_SOMETIMES_UNKNOWN: Final = "L-0263D0A3"


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
            token, core = arguments.get("NextToken"), self.cloud.core
            empty_first = core.knobs.empty_pages or (token is None and core.turn("quotas", False, False, False, True))
            part, token = page(found, lambda quota: quota.code, token, limit, empty_first=empty_first)
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
        unknown = {"ErrorCode": "DEPENDENCY_SERVICE_ERROR", "ErrorMessage": "The value could not be found out."}
        value: Json = {"Value": self.cloud.core.knobs.quotas[quota.code]}
        if quota.code == _SOMETIMES_UNKNOWN:
            value = self.cloud.core.turn("unknown quota", value, {"ErrorReason": unknown})
        return {
            "ServiceCode": quota.service,
            "QuotaCode": quota.code,
            "QuotaName": quota.name,
            "QuotaArn": f"arn:aws:servicequotas:{self.cloud.core.region}:{ACCOUNT}:{quota.service}/{quota.code}",
            **value,
            "Unit": "None",
            "Adjustable": True,
            "GlobalQuota": False,
        }
