# SPDX-License-Identifier: Apache-2.0
"""What the errors of Azure mean, in the words of `nodepool.driver.framework.cloud_errors` (AZ-10, CM-6). Pure.

An error is ``{"code", "message", "details": [...]}``; the code that says most is often one of the details, or in a
message that is JSON itself. The same form is used by answers, by operations that failed, and by states of a VM.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from nodepool.driver.framework.cloud_errors import (
    CloudAway,
    CloudNoCapacity,
    CloudNotFound,
    CloudQuota,
    CloudRefused,
    CloudSetup,
    LoginRefused,
    NotFoundByProxy,
    one_line,
)
from nodepool.driver.framework.http.rest_calls import PROXY, RestApi

if TYPE_CHECKING:
    from nodepool.driver.framework.http.plain_http import HttpAnswer

#: A quota of the subscription, or another limit, is used up. It may be free again soon, so the launch waits.
QUOTA: Final = frozenset(
    {
        *("QuotaExceeded", "ResourceQuotaExceeded", "SubscriptionQuotaExceeded", "SubnetIsFull"),
        "MaxStorageAccountsCountPerSubscriptionExceeded",
    }
)
#: How the codes of limits of networks end, such as ``IPv4StandardSkuPublicIpCountLimitReached``; without case.
_COUNT_LIMIT: Final = "countlimitreached"
#: Codes of quota that mean it only if the message says so.
MAYBE_QUOTA: Final = frozenset({"OperationNotAllowed", "Conflict", "BadRequest"})
_QUOTA_WORDS: Final = re.compile(r"exceeding approved .*quota|quota limit|quota has been reached", re.IGNORECASE)
#: There is no capacity in this zone, or none of this size. Others may have some.
CAPACITY: Final = frozenset(
    {
        *("AllocationFailed", "ZonalAllocationFailed", "OverconstrainedAllocationRequest"),
        *("OverconstrainedZonalAllocationRequest", "SkuNotAvailable", "AllocationTimeout"),
    }
)
#: Too many calls: nothing was done.
THROTTLED: Final = frozenset({"TooManyRequests", "SubscriptionRequestsThrottled"})
#: The credentials are not, or no longer, valid: nothing was done.
LOGIN: Final = frozenset(
    {
        *("InvalidAuthenticationToken", "InvalidAuthenticationTokenTenant", "ExpiredAuthenticationToken"),
        *("AuthenticationFailed", "AuthenticationFailedMissingToken"),
    }
)
#: Azure has trouble of its own. Who knows what was done?
AWAY: Final = frozenset(
    {"InternalServerError", "ServiceUnavailable", "InternalExecutionError", "InternalOperationError", "ServerTimeout"}
)
#: The credentials are good, but not for this.
DENIED: Final = frozenset(
    {"AuthorizationFailed", "LinkedAuthorizationFailed", "RequestDisallowedByPolicy", "LinkedAccessCheckFailed"}
)
#: Refused only for now: something else is under way.
BUSY: Final = frozenset(
    {
        *("AnotherOperationInProgress", "RetryableError", "RetryableErrorDueToAnotherOperation", "OperationPreempted"),
        *("NicReservedForAnotherVm", "ConflictingConcurrentWriteNotAllowed", "AttachDiskWhileBeingDetached"),
        *("ReferencedResourceNotProvisioned", "CanceledAndSupersededDueToAnotherOperation"),
    }
)
#: Codes that mean it only if the message says so.
_MAYBE_BUSY: Final = frozenset({"OperationNotAllowed", "Conflict"})
_BUSY_WORDS: Final = re.compile(
    "marked for deletion|concurrent request|another operation|operation is in progress|being (deleted|provisioned)",
    re.IGNORECASE,
)
#: With status 404: the call went to the wrong place. That says nothing of what was asked for.
WRONG_PLACE: Final = frozenset(
    {
        *("SubscriptionNotFound", "InvalidSubscriptionId", "InvalidResourceType", "InvalidResourceNamespace"),
        *("NoRegisteredProviderFound", "MissingSubscriptionRegistration", "LocationNotAvailableForResourceType"),
    }
)
#: The remedy for each that has one.
REMEDIES: Final = {
    "AuthorizationFailed": "give the credentials the role that the documentation of the driver shows",
    "LinkedAuthorizationFailed": "give the credentials the role that the documentation of the driver shows",
    "RequestDisallowedByPolicy": "a policy of the subscription forbids it: change the policy or the label",
    "ResourceGroupNotFound": "correct resource-group, or make the resource group",
    "ResourceGroupBeingDeleted": "the resource group is being deleted: name another one in resource-group",
    "ScopeLocked": "remove the lock of the resource group, or name another one in resource-group",
    "SubscriptionNotFound": "correct subscriptionId in the file of auth-path",
    "InvalidSubscriptionId": "correct subscriptionId in the file of auth-path",
    "NoRegisteredProviderFound": "correct location",
    "LocationNotAvailableForResourceType": "correct location",
    "ImageNotFound": "correct the image of the label",
    "PlatformImageNotFound": "correct image-reference",
    "GalleryImageNotFound": "correct the gallery, the image or its version",
    "InvalidParameter": "check vm-size, image and volume-size of the label: they do not fit together",
    "VMSizeDoesntSupport": "choose another vm-size",
    "MarketplacePurchaseEligibilityFailed": "accept the terms of the image in the Marketplace",
    "ResourcePurchaseValidationFailed": "accept the terms of the image in the Marketplace",
    "SubnetIsFull": "use a larger subnet, or lower max-servers",
}
#: With fewer calls left than these in a class, the class pauses: for a moment, or because its window has minutes.
LOWEST_LEFT: Final = 3
_PAUSE_SECONDS: Final = 1.0
_WINDOW_PAUSE_SECONDS: Final = 5.0
_LEFT: Final = re.compile(r"x-ms-ratelimit-remaining-subscription-(?:global-)?(?:reads|writes|deletes)", re.IGNORECASE)
_RESOURCE_LEFT: Final = "x-ms-ratelimit-remaining-resource"
#: Such a window, ``Microsoft.Compute/LowCostGetResource`` for example, is of calls about one VM: others go on.
_OF_ONE: Final = "Resource"
#: How deep details may be in each other.
_DEEPEST: Final = 5


class CloudBusy(CloudRefused):
    """Refused only for now: the same call will be accepted when something else has ended."""


class AzureError(NamedTuple):
    """One error, or one of its details."""

    code: str
    message: str


class ArmApi(RestApi):
    """What the answers of the Azure Resource Manager mean."""

    def throttled(self, answer: HttpAnswer) -> bool:
        # Networks say with the same status that one resource is busy: other calls need not wait.
        return answer.status == 429 and not any(is_busy(error) for error in _errors_of(answer))

    def seconds_left_alone(self, kind: str, answer: HttpAnswer) -> float | None:
        # Hardly any call is left.
        for part in answer.headers.get(_RESOURCE_LEFT, "").split(","):
            window, _, left = part.rpartition(";")
            if not window.strip().endswith(_OF_ONE) and left.strip().isdigit() and int(left) < LOWEST_LEFT:
                return _WINDOW_PAUSE_SECONDS
        for name, value in answer.headers.items():
            if _LEFT.fullmatch(name) and value.isdigit() and int(value) < LOWEST_LEFT:
                return _PAUSE_SECONDS
        return None

    def error(self, head: str, answer: HttpAnswer) -> Exception:
        return meaning(head, _errors_of(answer), answer.status)


def _errors_of(answer: HttpAnswer) -> list[AzureError]:
    try:
        return errors_in(answer.json())
    except (ValueError, RecursionError):
        return []


def errors_in(data: Any) -> list[AzureError]:
    """All errors in an answer or an operation, the outer one first."""
    inner = data.get("error", data) if isinstance(data, dict) else data
    return list(_walk(inner, _DEEPEST))


def _walk(data: Any, depth: int) -> Iterator[AzureError]:
    """Not all services keep to the form: where a list belongs may be one error, and a list where one belongs."""
    if isinstance(data, list):
        for entry in data:
            yield from _walk(entry if isinstance(entry, dict) else None, depth)
    if depth <= 0 or not isinstance(data, dict):
        return
    code, message = data.get("code"), data.get("message")
    if isinstance(code, str) and code:
        yield AzureError(code, message if isinstance(message, str) else "")
    if isinstance(message, str) and message.lstrip().startswith("{"):
        try:
            nested = json.loads(message)
        except (ValueError, RecursionError):
            nested = None
        if isinstance(nested, dict):
            yield from _walk(nested.get("error", nested), depth - 1)
    yield from _walk(data.get("details"), depth - 1)
    yield from _walk(data.get("innererror"), depth - 1)


def is_quota(error: AzureError) -> bool:
    if error.code in QUOTA or error.code.lower().endswith(_COUNT_LIMIT):
        return True
    return error.code in MAYBE_QUOTA and _QUOTA_WORDS.search(error.message) is not None


def is_busy(error: AzureError) -> bool:
    if error.code in BUSY:
        return True
    return error.code in _MAYBE_BUSY and _BUSY_WORDS.search(error.message) is not None


def meaning(head: str, errors: list[AzureError], status: int = 0) -> CloudRefused | CloudAway:
    """The exception for errors that Azure tells.

    :param head: whose call it was, and which.
    :param status: of HTTP; 0 = an operation ended with them.
    """
    codes = {error.code for error in errors}
    text = f"{head}: {_told(errors) or f'status {status}'}"
    busy = next((error.code for error in errors if is_busy(error)), None)
    if (status == 429 and not busy) or codes & THROTTLED:
        return CloudAway(text, maybe_done=False, code=_first(errors, THROTTLED) or "TooManyRequests")
    if quota := [error for error in errors if is_quota(error)]:
        advice = REMEDIES.get(quota[0].code, "ask for more under Quotas in the portal, or lower max-servers")
        return CloudQuota(f"{text}; {advice}", code=quota[0].code, status=status)
    if no_capacity := _first(errors, CAPACITY):
        return CloudNoCapacity(text, code=no_capacity, status=status)
    if status == 401 or codes & LOGIN:
        return LoginRefused(f"{text}; check the file of auth-path", _first(errors, LOGIN) or "401")
    remedy = next((REMEDIES[error.code] for error in reversed(errors) if error.code in REMEDIES), None)
    told = f"{text}; {remedy}" if remedy else text
    last = errors[-1].code if errors else str(status)
    if status == 404 and not errors:
        # Azure says what it did not find. This is the answer of something before it, and proves nothing.
        return NotFoundByProxy(f"{told}; {PROXY}", code=last)
    if status == 404 and not codes & WRONG_PLACE:
        return CloudNotFound(told, code=last, status=status)
    if busy:
        return CloudBusy(told, code=busy, status=status)
    if status in (403, 404) or codes & DENIED:
        return CloudSetup(told, code=_first(errors, DENIED) or last, status=status)
    if status >= 500 or codes & AWAY:
        return CloudAway(told, code=_first(errors, AWAY) or last)
    kind = CloudSetup if remedy else CloudRefused
    return kind(told, code=last, status=status)


def _first(errors: list[AzureError], codes: frozenset[str]) -> str | None:
    return next((error.code for error in errors if error.code in codes), None)


def _told(errors: list[AzureError]) -> str:
    """Codes and messages; a message that is JSON is told by what is in it."""
    shown = [
        f"{error.code}: {error.message}" if error.message and not error.message.lstrip().startswith("{") else error.code
        for error in errors
    ]
    return one_line(" / ".join(dict.fromkeys(shown)))
