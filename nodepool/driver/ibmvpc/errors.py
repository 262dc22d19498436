# SPDX-License-Identifier: Apache-2.0
"""What the errors of IBM VPC mean, in the words of `nodepool.driver.framework.cloud_errors` (CM-6). Pure.

An answer has ``{"errors": [{"code", "message", "target"}], "trace"}``. An instance that does not start has reasons with
codes of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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

#: A quota of the account or of the region is used up. It may be free again soon, so the launch waits.
QUOTA: Final = frozenset({"over_quota", "quota_exceeded", "limit_exceeded", "vpc_resource_limit_exceeded"})
#: There is no capacity in this zone, or none of this profile. Others may have some.
CAPACITY: Final = frozenset(
    {
        *("cannot_start_capacity", "cannot_start_compute", "cannot_start_placement_group", "cannot_start_ip_address"),
        *("cannot_start_reservation_capacity", "cannot_start_reservation_expired"),
        *("insufficient_capacity", "insufficient_available_ip_addresses", "insufficient_ip_addresses"),
        "subnet_is_full",
    }
)
#: IBM took a spot instance away.
PREEMPTED: Final = "stopped_by_preemption"
#: Something has the name already: it may be ours, of an order that was not answered.
EXISTS: Final = frozenset({"validation_unique_failed", "name_in_use"})
#: Too many calls: nothing was done.
THROTTLED: Final = frozenset({"too_many_requests", "rate_limit_exceeded"})
#: The credentials are not, or no longer, valid: nothing was done.
LOGIN: Final = frozenset({"not_authenticated", "invalid_token", "token_expired"})
#: The credentials are good, but not for this.
DENIED: Final = frozenset({"not_authorized", "forbidden"})
#: IBM has trouble of its own. Who knows what was done?
AWAY: Final = frozenset({"internal_error", "service_unavailable", "service_error"})
#: Refused only for now: something else is under way.
BUSY: Final = frozenset(
    {"resource_in_use", "resource_locked", "instance_pending", "floating_ip_pending", "volume_in_use", "conflict"}
)
_GRANT: Final = "give the credentials the access policies that the documentation of the driver shows"
#: The remedy for each that has one.
REMEDIES: Final = {
    "not_authorized": _GRANT,
    "forbidden": _GRANT,
    "image_not_found": "correct the image of the label",
    "profile_not_found": "correct profile of the label",
    "instance_profile_not_found": "correct profile of the label",
    "subnet_not_found": "correct subnet",
    "zone_not_found": "correct zone",
    "vpc_not_found": "correct vpc",
    "key_not_found": "correct keys of the image",
    "validation_unique_failed": "something else in the region has the name; delete it, or use another region",
    "insufficient_available_ip_addresses": "use a larger subnet, or lower max-servers",
    "cannot_start_ip_address": "use a larger subnet, or lower max-servers",
}
_MORE_QUOTA: Final = "ask IBM for more in a support case, or lower max-servers and quota"


#: Names of code and message in errors, as the SDK of IBM knows them (ibm_cloud_sdk_core.api_exception), and IAM's.
_CODES: Final = ("code", "error_code", "errorCode")
_MESSAGES: Final = ("message", "error", "errorMessage")


class IbmError(NamedTuple):
    """One error of an answer, or one reason of a status."""

    code: str
    message: str

    def __str__(self) -> str:
        return ": ".join(filter(None, self))


class VpcApi(RestApi):
    """What the answers of the API of VPC, of resource groups and of object storage mean."""

    def error(self, head: str, answer: HttpAnswer) -> Exception:
        try:
            data = answer.json()
        except (ValueError, RecursionError):
            data = None
        return meaning(head, errors_in(data), answer.status)


def errors_in(data: Any) -> list[IbmError]:
    """All errors in an answer. Resource groups, IAM and gateways have their own names for code and message; some have
    a message only.
    """
    found = data.get("errors") if isinstance(data, dict) else None
    errors = [error for error in found if isinstance(error, dict)] if isinstance(found, list) else []
    if not errors and isinstance(data, dict):
        errors = [data]
    named = ((_first_of(error, _CODES), _first_of(error, _MESSAGES)) for error in errors)
    return [IbmError(code, message) for code, message in named if code or message]


def _first_of(error: Mapping[str, Any], names: Iterable[str]) -> str:
    return next((str(error[name]) for name in names if isinstance(error.get(name), str | int)), "")


def reasons_of(data: Any) -> tuple[IbmError, ...]:
    """``status_reasons`` of an instance or an image."""
    found = data.get("status_reasons") if isinstance(data, dict) else None
    reasons = (reason for reason in found or () if isinstance(reason, dict))
    return tuple(IbmError(str(reason.get("code") or ""), str(reason.get("message") or "")) for reason in reasons)


def texts_of(errors: Iterable[IbmError]) -> str:
    """Codes and messages in one line."""
    return one_line(" / ".join(dict.fromkeys(map(str, errors))))


def meaning(head: str, errors: list[IbmError], status: int = 0) -> CloudRefused | CloudAway:
    """The exception for errors that IBM tells.

    :param head: whose call it was, and which.
    :param status: of HTTP; 0 = an instance has these reasons.
    """
    text = f"{head}: {texts_of(errors) or f'status {status}'}"
    if status == 429 or _first(errors, THROTTLED):
        return CloudAway(text, maybe_done=False, code=_first(errors, THROTTLED) or "too_many_requests")
    if quota := _first(errors, QUOTA):
        return CloudQuota(f"{text}; {_MORE_QUOTA}", code=quota, status=status)
    remedy = next((REMEDIES[error.code] for error in errors if error.code in REMEDIES), None)
    remedied = f"{text}; {remedy}" if remedy else text
    code = next((error.code for error in errors if error.code), str(status))
    if no_capacity := _first(errors, CAPACITY):
        return CloudNoCapacity(remedied, code=no_capacity, status=status)
    if status == 401 or _first(errors, LOGIN):
        return LoginRefused(f"{text}; check the credentials", _first(errors, LOGIN) or "401")
    if status == 404:
        return CloudNotFound(remedied, code=code, status=status)
    if denied := _first(errors, DENIED) or (code if status == 403 else None):
        return CloudSetup(text if denied == "403" else f"{text}; {_GRANT}", code=denied, status=status)
    if busy := _first(errors, BUSY):
        return CloudRefused(text, code=busy, status=status)
    if status >= 500 or _first(errors, AWAY):
        return CloudAway(text, code=_first(errors, AWAY) or code)
    kind = CloudSetup if remedy and not _first(errors, EXISTS) else CloudRefused
    return kind(remedied, code=code, status=status)


def exists(error: CloudRefused) -> bool:
    """Was an order refused because something has the name already?"""
    return error.code in EXISTS


def busy(error: Exception) -> bool:
    """Was a call refused only for now, because something else is under way?

    IBM answers 409 also where a quota or a lack of addresses is the reason.
    """
    if not isinstance(error, CloudRefused) or isinstance(error, (CloudQuota, CloudNoCapacity)):
        return False
    return error.status == 409 or error.code in BUSY


def passes(error: CloudRefused | CloudAway) -> bool:
    """May a call for a floating IP work when it is made again, with what the next list says?"""
    if isinstance(error, CloudAway):
        # Whether it was done the list says.
        return error.maybe_done
    if isinstance(error, (CloudQuota, CloudNoCapacity)):
        return False
    # Somebody has deleted the one that was chosen, has the name, or works on it.
    return isinstance(error, CloudNotFound) or exists(error) or busy(error)


def _first(errors: Iterable[IbmError], codes: frozenset[str]) -> str | None:
    return next((error.code for error in errors if error.code in codes), None)
