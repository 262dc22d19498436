# SPDX-License-Identifier: Apache-2.0
"""What the errors of Compute Engine and Cloud Storage mean, in the words of `nodepool.driver.framework.cloud_errors`
(CM-6). Pure.

An answer has ``{"error": {"code": 403, "message", "errors": [{"reason", "message"}]}}``. An operation that failed has
``{"error": {"errors": [{"code": "QUOTA_EXCEEDED", "message", "errorDetails": [...]}]}}``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from nodepool.driver.framework.cloud_errors import (
    CloudAway,
    CloudNoCapacity,
    CloudNotFound,
    CloudQuota,
    CloudRefused,
    CloudSetup,
    LoginRefused,
    one_line,
)
from nodepool.driver.framework.http.rest_calls import RestApi

if TYPE_CHECKING:
    from nodepool.driver.framework.http.plain_http import HttpAnswer

#: A quota of the project is used up. It may be free again soon, so the launch waits.
QUOTA: Final = frozenset(
    {"QUOTA_EXCEEDED", "quotaExceeded", "IP_SPACE_EXHAUSTED", "IP_SPACE_EXHAUSTED_WITH_DETAILS", "limitExceeded"}
)
#: The zone has no capacity for such an instance. Another zone or machine type may have some.
CAPACITY: Final = frozenset(
    {
        *("ZONE_RESOURCE_POOL_EXHAUSTED", "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS"),
        *("insufficientCapacity", "VM_MIN_COUNT_NOT_REACHED"),
    }
)
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
#: The credentials are good, but not for this.
DENIED: Final = frozenset(
    {"forbidden", "insufficientPermissions", "accessNotConfigured", "PERMISSIONS_ERROR", "conditionNotMet"}
)
#: Google has trouble of its own. Who knows what was done?
AWAY: Final = frozenset({"backendError", "internalError", "INTERNAL_ERROR", "SERVICE_UNAVAILABLE"})
#: Refused only for now: something else is under way.
BUSY: Final = frozenset(
    {
        *("resourceNotReady", "RESOURCE_NOT_READY", "resourceInUseByAnotherResource"),
        "RESOURCE_IN_USE_BY_ANOTHER_RESOURCE",
    }
)
EXISTS: Final = frozenset({"alreadyExists", "RESOURCE_ALREADY_EXISTS", "conflict"})
_ROLE: Final = "give the service account the roles that the documentation of the driver shows"
#: The remedy for each that has one.
REMEDIES: Final = {
    "forbidden": _ROLE,
    "insufficientPermissions": _ROLE,
    "PERMISSIONS_ERROR": _ROLE,
    "accessNotConfigured": "enable the Compute Engine API in the project",
    "conditionNotMet": "a policy of the organization forbids it: change the policy or the label",
    "IP_SPACE_EXHAUSTED": "use a larger subnetwork, or lower max-servers",
    "IP_SPACE_EXHAUSTED_WITH_DETAILS": "use a larger subnetwork, or lower max-servers",
    "invalid": "check instance-type, image, volume-type and volume-size of the label: they do not fit together",
}
#: https://cloud.google.com/storage/docs/retry-strategy: as 5xx.
_TIMED_OUT: Final = 408
#: Google does not know a zone: the same code as for a label whose parts do not fit together.
_UNKNOWN_ZONE: Final = "Unknown zone"
#: The project of a path is not there. Nothing else is known of what was asked for.
_NO_PROJECT: Final = re.compile(r"resource 'projects/[^/']+' was not found")
#: JSON has some numbers of Google as texts.
_NUMBER: Final = re.compile(r"\d+(?:\.\d+)?")
#: A limit of calls whose reason is that of a quota.
_RATE_WORDS: Final = re.compile(r"per (?:minute|second|100 seconds)", re.IGNORECASE)


class GceError(NamedTuple):
    """One error.

    :param metric: of a quota, with limit and place, or which limit of calls it is, as Google tells it.
    """

    code: str
    message: str
    metric: str = ""


class GceApi(RestApi):
    """What the answers mean."""

    def throttled(self, answer: HttpAnswer) -> bool:
        if answer.status == 429:
            return True
        return answer.status == 403 and any(is_throttling(error) for error in errors_in(_content(answer)))

    def error(self, head: str, answer: HttpAnswer) -> Exception:
        return meaning(head, errors_in(_content(answer)), answer.status)


def _content(answer: HttpAnswer) -> Any:
    try:
        return answer.json()
    except (ValueError, RecursionError):
        return None


def errors_in(data: Any) -> list[GceError]:
    """All errors in an answer or an operation."""
    if isinstance(data, list) and data:
        # Some of Google's servers answer with an array, see googleapiclient.errors.HttpError.
        data = data[0]
    outer = data.get("error") if isinstance(data, dict) else None
    if isinstance(outer, str):
        # As OAuth has it, RFC 6749, 5.2.
        return [GceError(outer, str(data.get("error_description") or ""))]
    if not isinstance(outer, dict):
        return []
    found = list(_entries(outer.get("errors")))
    if not found and isinstance(outer.get("message"), str):
        code = outer.get("status") or outer.get("code") or ""
        found.append(GceError(str(code), outer["message"]))
    if found and not found[0].metric:
        found[0] = found[0]._replace(metric=_error_info(outer.get("details")))
    return found


def _error_info(details: Any) -> str:
    """What an answer tells beside its reason, e.g. of which limit ``rateLimitExceeded`` is
    (https://cloud.google.com/apis/design/errors, ErrorInfo).
    """
    for detail in details if isinstance(details, list) else ():
        if isinstance(detail, dict) and isinstance(detail.get("reason"), str):
            told = detail.get("metadatas") or detail.get("metadata")
            where = told.get("location") or told.get("quota_location") if isinstance(told, dict) else None
            return f"{detail['reason']} in {where}" if where else detail["reason"]
    return ""


def _entries(entries: Any) -> Iterator[GceError]:
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict):
            code = entry.get("reason") or entry.get("code")
            yield GceError(str(code or ""), str(entry.get("message") or ""), _metric(entry.get("errorDetails")))


def _metric(details: Any) -> str:
    for detail in details if isinstance(details, list) else ():
        quota = detail.get("quotaInfo") if isinstance(detail, dict) else None
        if isinstance(quota, dict):
            where = ", ".join(f"{key} {value}" for key, value in (quota.get("dimensions") or {}).items())
            limit = str(quota.get("limit"))
            told = f" is {float(limit):g}" if _NUMBER.fullmatch(limit) else ""
            return f"{quota.get('metricName')}{told}" + (f" in {where}" if where else "")
    return ""


def is_throttling(error: GceError) -> bool:
    """Does it say that there were too many calls?"""
    return error.code in THROTTLED or (error.code in QUOTA and _RATE_WORDS.search(error.message) is not None)


def operation_failure(head: str, operation: Mapping[str, Any]) -> CloudRefused | CloudAway | None:
    """The exception for an operation that is over; None = it succeeded."""
    errors = errors_in(operation)
    status = operation.get("httpErrorStatusCode")
    if not errors and not status:
        return None
    return meaning(head, errors, int(status or 0))


def meaning(head: str, errors: list[GceError], status: int = 0) -> CloudRefused | CloudAway:
    """The exception for errors that Google tells.

    :param head: whose call it was, and which.
    :param status: of HTTP; 0 = an operation ended with them.
    """
    codes = {error.code for error in errors}
    last = errors[0].code if errors else str(status)
    text = f"{head}: {_told(errors) or f'status {status}'}"
    if no_capacity := _first(errors, CAPACITY):
        return CloudNoCapacity(text, code=no_capacity, status=status)
    if status == 429 or any(is_throttling(error) for error in errors):
        return CloudAway(text, maybe_done=False, code=_first(errors, THROTTLED) or last)
    if quota := _first(errors, QUOTA):
        advice = REMEDIES.get(quota, "ask for more under Quotas in the Google Cloud console, or lower max-servers")
        return CloudQuota(f"{text}; {advice}", code=quota, status=status)
    if status == 401:
        return LoginRefused(f"{text}; check the credentials", last)
    remedy = next((REMEDIES[error.code] for error in errors if error.code in REMEDIES), None)
    if any(_UNKNOWN_ZONE in error.message for error in errors):
        remedy = "correct zone of the provider"
    if status == 404 and any(_NO_PROJECT.search(error.message) for error in errors):
        # A machine type that is not found is another matter, and a deletion there was no success.
        return CloudSetup(f"{text}; correct project", code=last, status=status)
    told = f"{text}; {remedy}" if remedy else text
    if status == 404:
        return CloudNotFound(told, code=last, status=status)
    if busy := _first(errors, BUSY):
        return CloudRefused(told, code=busy, status=status)
    if status == 403 or codes & DENIED:
        return CloudSetup(told, code=_first(errors, DENIED) or last, status=status)
    if status >= 500 or status == _TIMED_OUT or codes & AWAY:
        return CloudAway(told, code=_first(errors, AWAY) or last)
    kind = CloudSetup if remedy else CloudRefused
    return kind(told, code=last, status=status)


def _first(errors: list[GceError], codes: frozenset[str]) -> str | None:
    return next((error.code for error in errors if error.code in codes), None)


def _told(errors: list[GceError]) -> str:
    """Codes, messages and metrics."""
    shown = [
        ": ".join(part for part in (error.code, error.message) if part) + (f" ({error.metric})" if error.metric else "")
        for error in errors
    ]
    return one_line(" / ".join(dict.fromkeys(shown)))
