# SPDX-License-Identifier: Apache-2.0
"""What the errors of Compute Engine and Cloud Storage mean, in the words of `nodepool.driver.framework.cloud_errors`
(CM-6). Pure.

An answer has ``{"error": {"code": 403, "message", "errors": [{"reason", "message"}]}}``. An operation that failed has
``{"error": {"errors": [{"code": "QUOTA_EXCEEDED", "message", "errorDetails": [...]}]}}``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

from nodepool.driver.framework.cloud_errors import (
    CloudAway,
    CloudNotFound,
    CloudRefused,
    CloudSetup,
    CodedError,
    mappings_in,
)
from nodepool.driver.framework.http.rest_calls import CodedApi

if TYPE_CHECKING:
    from nodepool.driver.framework.http.plain_http import HttpAnswer

#: Google says so of a spot instance that it takes away while it is created.
UNSUPPORTED: Final = "UNSUPPORTED_OPERATION"
#: Too many operations are under way: the same succeeds a moment later.
CONCURRENT: Final = frozenset({"CONCURRENT_OPERATIONS_QUOTA_EXCEEDED", "concurrentOperationsQuotaExceeded"})
#: Too many calls: nothing was done.
THROTTLED: Final = CONCURRENT | frozenset(
    {
        *("rateLimitExceeded", "userRateLimitExceeded", "RATE_LIMIT_EXCEEDED"),
        *("RESOURCE_OPERATION_RATE_EXCEEDED", "resourceOperationRateExceeded"),
    }
)
#: Refused only for now: something else is under way.
BUSY: Final = frozenset(
    {
        *("resourceNotReady", "RESOURCE_NOT_READY", "resourceInUseByAnotherResource"),
        "RESOURCE_IN_USE_BY_ANOTHER_RESOURCE",
    }
)
EXISTS: Final = frozenset({"alreadyExists", "RESOURCE_ALREADY_EXISTS", "conflict"})
_ROLE: Final = "give the service account the roles that the documentation of the driver shows"
#: Google does not know a zone: the same code as for a label whose parts do not fit together.
_UNKNOWN_ZONE: Final = "Unknown zone"
#: The project of a path is not there. Nothing else is known of what was asked for.
_NO_PROJECT: Final = re.compile(r"resource 'projects/[^/']+' was not found")
#: JSON has some numbers of Google as texts.
_NUMBER: Final = re.compile(r"\d+(?:\.\d+)?")
#: A limit of calls whose reason is that of a quota.
_RATE_WORDS: Final = re.compile(r"per (?:minute|second|100 seconds)", re.IGNORECASE)


class GceApi(CodedApi):
    """What the answers mean."""

    #: A quota of the project is used up. It may be free again soon, so the launch waits.
    quota = frozenset(
        {"QUOTA_EXCEEDED", "quotaExceeded", "IP_SPACE_EXHAUSTED", "IP_SPACE_EXHAUSTED_WITH_DETAILS", "limitExceeded"}
    )
    #: The zone has no capacity for such an instance. Another zone or machine type may have some.
    capacity = frozenset(
        {
            *("ZONE_RESOURCE_POOL_EXHAUSTED", "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS"),
            *("insufficientCapacity", "VM_MIN_COUNT_NOT_REACHED"),
        }
    )
    throttled_codes = THROTTLED
    #: The credentials are good, but not for this.
    denied = frozenset(
        {"forbidden", "insufficientPermissions", "accessNotConfigured", "PERMISSIONS_ERROR", "conditionNotMet"}
    )
    #: Google has trouble of its own. Who knows what was done?
    away = frozenset({"backendError", "internalError", "INTERNAL_ERROR", "SERVICE_UNAVAILABLE"})
    busy = BUSY
    #: The remedy for each that has one.
    remedies: ClassVar[Mapping[str, str]] = {
        "forbidden": _ROLE,
        "insufficientPermissions": _ROLE,
        "PERMISSIONS_ERROR": _ROLE,
        "accessNotConfigured": "enable the Compute Engine API in the project",
        "conditionNotMet": "a policy of the organization forbids it: change the policy or the label",
        "IP_SPACE_EXHAUSTED": "use a larger subnetwork, or lower max-servers",
        "IP_SPACE_EXHAUSTED_WITH_DETAILS": "use a larger subnetwork, or lower max-servers",
        "invalid": "check instance-type, image, volume-type and volume-size of the label: they do not fit together",
    }
    more_quota = "ask for more under Quotas in the Google Cloud console, or lower max-servers"

    def throttled(self, answer: HttpAnswer) -> bool:
        if answer.status == 429:
            return True
        return answer.status == 403 and any(map(self.is_throttling, self.errors_in(answer.data)))

    def is_throttling(self, error: CodedError) -> bool:
        return error.code in THROTTLED or (self.is_quota(error) and _RATE_WORDS.search(error.message) is not None)

    def remedy_for(self, errors: Sequence[CodedError], status: int) -> str | None:
        if any(_UNKNOWN_ZONE in error.message for error in errors):
            return "correct zone of the provider"
        return super().remedy_for(errors, status)

    def not_found(self, text: str, errors: Sequence[CodedError], code: str) -> CloudRefused:
        # A machine type that is not found is another matter, and a deletion in no project was no success.
        if any(_NO_PROJECT.search(error.message) for error in errors):
            return CloudSetup(f"{text}; correct project", code=code, status=404)
        return CloudNotFound(text, code=code, status=404)

    def errors_in(self, data: Any) -> list[CodedError]:
        """Of an answer or an operation. After a message stands which quota, or which limit of calls, it is about."""
        if isinstance(data, list) and data:
            # Some of Google's servers answer with an array, see googleapiclient.errors.HttpError.
            data = data[0]
        outer = data.get("error") if isinstance(data, dict) else None
        if isinstance(outer, str):
            # As OAuth has it, RFC 6749, 5.2.
            return [CodedError(outer, str(data.get("error_description") or ""))]
        if not isinstance(outer, dict):
            return []
        entries = mappings_in(outer.get("errors"))
        if not entries and isinstance(outer.get("message"), str):
            entries = [{"code": outer.get("status") or outer.get("code"), "message": outer["message"]}]
        found = []
        for number, entry in enumerate(entries):
            about = _metric(entry.get("errorDetails")) or ("" if number else _error_info(outer.get("details")))
            words = (str(entry.get("message") or ""), f"({about})" if about else "")
            code = entry.get("reason") or entry.get("code")
            found.append(CodedError(str(code or ""), " ".join(filter(None, words))))
        return found


def _error_info(details: Any) -> str:
    """What an answer tells beside its reason, e.g. of which limit ``rateLimitExceeded`` is
    (https://cloud.google.com/apis/design/errors, ErrorInfo).
    """
    for detail in mappings_in(details):
        if isinstance(detail.get("reason"), str):
            more = detail.get("metadatas") or detail.get("metadata")
            where = more.get("location") or more.get("quota_location") if isinstance(more, dict) else None
            return f"{detail['reason']} in {where}" if where else detail["reason"]
    return ""


def _metric(details: Any) -> str:
    """A quota, with limit and place, as Google tells it."""
    for detail in mappings_in(details):
        quota = detail.get("quotaInfo")
        if isinstance(quota, dict):
            where = ", ".join(f"{key} {value}" for key, value in (quota.get("dimensions") or {}).items())
            limit = str(quota.get("limit"))
            number = f" is {float(limit):g}" if _NUMBER.fullmatch(limit) else ""
            return f"{quota.get('metricName')}{number}" + (f" in {where}" if where else "")
    return ""


_API: Final = GceApi()
errors_in: Final = _API.errors_in


def operation_failure(head: str, operation: Mapping[str, Any]) -> CloudRefused | CloudAway | None:
    """The exception for an operation that is over; None = it succeeded."""
    errors = errors_in(operation)
    status = operation.get("httpErrorStatusCode")
    return _API.meaning(head, errors, int(status or 0)) if errors or status else None
