# SPDX-License-Identifier: Apache-2.0
"""What the errors of IBM VPC mean, in the words of `nodepool.driver.framework.cloud_errors` (CM-6). Pure.

An answer has ``{"errors": [{"code", "message", "target"}], "trace"}``. An instance that does not start has reasons with
codes of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final

from nodepool.driver.framework.cloud_errors import (
    CloudAway,
    CloudNoCapacity,
    CloudNotFound,
    CloudQuota,
    CloudRefused,
    CodedError,
    mappings_in,
)
from nodepool.driver.framework.cloud_errors import texts_of as texts_of
from nodepool.driver.framework.http.rest_calls import CodedApi

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
#: Refused only for now: something else is under way.
BUSY: Final = frozenset(
    {"resource_in_use", "resource_locked", "instance_pending", "floating_ip_pending", "volume_in_use", "conflict"}
)
_GRANT: Final = "give the credentials the access policies that the documentation of the driver shows"

#: Names of code and message in errors, as the SDK of IBM knows them (ibm_cloud_sdk_core.api_exception), and IAM's.
_CODES: Final = ("code", "error_code", "errorCode")
_MESSAGES: Final = ("message", "error", "errorMessage")


class VpcApi(CodedApi):
    """What the answers of the API of VPC, of resource groups and of object storage mean."""

    #: A quota of the account or of the region is used up. It may be free again soon, so the launch waits.
    quota = frozenset({"over_quota", "quota_exceeded", "limit_exceeded", "vpc_resource_limit_exceeded"})
    capacity = CAPACITY
    #: Too many calls: nothing was done.
    throttled_codes = frozenset({"too_many_requests", "rate_limit_exceeded"})
    #: The credentials are not, or no longer, valid: nothing was done.
    login = frozenset({"not_authenticated", "invalid_token", "token_expired"})
    #: The credentials are good, but not for this.
    denied = frozenset({"not_authorized", "forbidden"})
    #: IBM has trouble of its own. Who knows what was done?
    away = frozenset({"internal_error", "service_unavailable", "service_error"})
    busy = BUSY
    exists = EXISTS
    #: The remedy for each that has one.
    remedies: ClassVar[Mapping[str, str]] = {
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
    more_quota = "ask IBM for more in a support case, or lower max-servers and quota"

    def errors_in(self, data: Any) -> list[CodedError]:
        """Resource groups, IAM and gateways have their own names for code and message; some have a message only."""
        if not isinstance(data, dict):
            return []
        errors = mappings_in(data.get("errors")) or [data]
        named = ((_first_of(error, _CODES), _first_of(error, _MESSAGES)) for error in errors)
        return [CodedError(code, message) for code, message in named if code or message]

    def remedy_for(self, errors: Sequence[CodedError], status: int) -> str | None:
        return super().remedy_for(errors, status) or (_GRANT if status == 403 and errors else None)


def _first_of(error: Mapping[str, Any], names: Iterable[str]) -> str:
    return next((str(error[name]) for name in names if isinstance(error.get(name), str | int)), "")


_API: Final = VpcApi()
errors_in: Final = _API.errors_in
meaning: Final = _API.meaning


def reasons_of(data: Any) -> tuple[CodedError, ...]:
    """``status_reasons`` of an instance or an image."""
    found = mappings_in(data.get("status_reasons")) if isinstance(data, dict) else []
    return tuple(CodedError(str(reason.get("code") or ""), str(reason.get("message") or "")) for reason in found)


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
