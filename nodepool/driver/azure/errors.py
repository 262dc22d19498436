# SPDX-License-Identifier: Apache-2.0
"""What the errors of Azure mean, in the words of `nodepool.driver.framework.cloud_errors` (AZ-10, CM-6). Pure.

An error is ``{"code", "message", "details": [...]}``; the code that says most is often one of the details, or in a
message that is JSON itself. The same form is used by answers, by operations that failed, and by states of a VM.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

from nodepool.driver.framework.cloud_errors import (
    CloudAway,
    CloudNotFound,
    CloudRefused,
    CloudSetup,
    CodedError,
    NotFoundByProxy,
)
from nodepool.driver.framework.http.rest_calls import PROXY, CodedApi

if TYPE_CHECKING:
    from nodepool.driver.framework.http.plain_http import HttpAnswer

#: How the codes of limits of networks end, such as ``IPv4StandardSkuPublicIpCountLimitReached``; without case.
_COUNT_LIMIT: Final = "countlimitreached"
#: Codes of quota that mean it only if the message says so.
MAYBE_QUOTA: Final = frozenset({"OperationNotAllowed", "Conflict", "BadRequest"})
_QUOTA_WORDS: Final = re.compile(r"exceeding approved .*quota|quota limit|quota has been reached", re.IGNORECASE)
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


class ArmApi(CodedApi):
    """What the answers of the Azure Resource Manager mean."""

    #: A quota of the subscription, or another limit, is used up. It may be free again soon, so the launch waits.
    quota = frozenset(
        {
            *("QuotaExceeded", "ResourceQuotaExceeded", "SubscriptionQuotaExceeded", "SubnetIsFull"),
            "MaxStorageAccountsCountPerSubscriptionExceeded",
        }
    )
    #: There is no capacity in this zone, or none of this size. Others may have some.
    capacity = frozenset(
        {
            *("AllocationFailed", "ZonalAllocationFailed", "OverconstrainedAllocationRequest"),
            *("OverconstrainedZonalAllocationRequest", "SkuNotAvailable", "AllocationTimeout"),
        }
    )
    #: Too many calls: nothing was done.
    throttled_codes = frozenset({"TooManyRequests", "SubscriptionRequestsThrottled"})
    #: The credentials are not, or no longer, valid: nothing was done.
    login = frozenset(
        {
            *("InvalidAuthenticationToken", "InvalidAuthenticationTokenTenant", "ExpiredAuthenticationToken"),
            *("AuthenticationFailed", "AuthenticationFailedMissingToken"),
        }
    )
    #: The credentials are good, but not for this.
    denied = frozenset(
        {"AuthorizationFailed", "LinkedAuthorizationFailed", "RequestDisallowedByPolicy", "LinkedAccessCheckFailed"}
    )
    #: Azure has trouble of its own. Who knows what was done?
    away = frozenset(
        {
            "InternalServerError",
            "ServiceUnavailable",
            "InternalExecutionError",
            "InternalOperationError",
            "ServerTimeout",
        }
    )
    busy = frozenset(
        {
            *(
                "AnotherOperationInProgress",
                "RetryableError",
                "RetryableErrorDueToAnotherOperation",
                "OperationPreempted",
            ),
            *("NicReservedForAnotherVm", "ConflictingConcurrentWriteNotAllowed", "AttachDiskWhileBeingDetached"),
            *("ReferencedResourceNotProvisioned", "CanceledAndSupersededDueToAnotherOperation"),
        }
    )
    busy_error = CloudBusy
    last_says_most = True
    #: The remedy for each that has one.
    remedies: ClassVar[Mapping[str, str]] = {
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
    more_quota = "ask for more under Quotas in the portal, or lower max-servers"
    check_login = "check the file of auth-path"

    def throttled(self, answer: HttpAnswer) -> bool:
        # Networks say with the same status that one resource is busy: other calls need not wait.
        return answer.status == 429 and not any(map(self.is_busy, self.errors_in(answer.data)))

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

    def errors_in(self, data: Any) -> list[CodedError]:
        """All errors in an answer or an operation, the outer one first."""
        return list(_walk(data.get("error", data) if isinstance(data, dict) else data, _DEEPEST))

    def is_quota(self, error: CodedError) -> bool:
        if super().is_quota(error) or error.code.lower().endswith(_COUNT_LIMIT):
            return True
        return error.code in MAYBE_QUOTA and _QUOTA_WORDS.search(error.message) is not None

    def is_busy(self, error: CodedError) -> bool:
        if super().is_busy(error):
            return True
        return error.code in _MAYBE_BUSY and _BUSY_WORDS.search(error.message) is not None

    def not_found(self, text: str, errors: Sequence[CodedError], code: str) -> CloudRefused | CloudAway:
        if not errors:
            # Azure says what it did not find. This is the answer of something before it, and proves nothing.
            return NotFoundByProxy(f"{text}; {PROXY}", code=code)
        wrong_place = any(error.code in WRONG_PLACE for error in errors)
        return (CloudSetup if wrong_place else CloudNotFound)(text, code=code, status=404)


def _walk(data: Any, depth: int) -> Iterator[CodedError]:
    """Not all services keep to the form: where a list belongs may be one error, and a list where one belongs. A message
    that is JSON is told by what is in it.
    """
    if isinstance(data, list):
        for entry in data:
            yield from _walk(entry if isinstance(entry, dict) else None, depth)
    if depth <= 0 or not isinstance(data, dict):
        return
    code, message = data.get("code"), data.get("message")
    nested = None
    if isinstance(message, str) and message.lstrip().startswith("{"):
        try:
            nested, message = json.loads(message), ""
        except (ValueError, RecursionError):
            message = ""
    if isinstance(code, str) and code:
        yield CodedError(code, message if isinstance(message, str) else "")
    if isinstance(nested, dict):
        yield from _walk(nested.get("error", nested), depth - 1)
    yield from _walk(data.get("details"), depth - 1)
    yield from _walk(data.get("innererror"), depth - 1)


_API: Final = ArmApi()
errors_in: Final = _API.errors_in
meaning: Final = _API.meaning
