# SPDX-License-Identifier: Apache-2.0
"""What the error codes of AWS mean, in the words of `nodepool.exceptions` (AW-16, CM-6). Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from nodepool.driver.framework.cloud_errors import (
    CloudAway,
    CloudNoCapacity,
    CloudNotFound,
    CloudQuota,
    CloudRefused,
    CloudSetup,
    one_line,
)
from nodepool.driver.framework.http.rest_calls import PROXY

#: A limit of the account is used up. It may be free again soon, so the launch waits.
QUOTA: Final = frozenset(
    {
        *("VcpuLimitExceeded", "InstanceLimitExceeded", "MaxSpotInstanceCountExceeded", "VolumeLimitExceeded"),
        *("MaxIOPSLimitExceeded", "HostLimitExceeded", "SnapshotLimitExceeded", "AddressLimitExceeded"),
        *("NetworkInterfaceLimitExceeded", "ResourceCountLimitExceeded", "PendingSnapshotLimitExceeded"),
        *("ServiceQuotaExceededException", "ConcurrentLimitExceededException", "ConcurrentSnapshotLimitExceeded"),
    }
)
#: There is no room in this zone, or none of this type. Others may have some.
CAPACITY: Final = frozenset(
    {
        *("InsufficientInstanceCapacity", "InsufficientHostCapacity", "InsufficientCapacityOnHost"),
        *("InsufficientFreeAddressesInSubnet", "InsufficientCapacity", "InsufficientAddressCapacity"),
        *("InsufficientVolumeCapacity", "InsufficientReservedInstanceCapacity", "UnfulfillableCapacity"),
        *("SpotMaxPriceTooLow", "Unsupported"),
    }
)
#: Too many calls: nothing was done.
THROTTLED: Final = frozenset(
    {
        *("RequestLimitExceeded", "Throttling", "ThrottlingException", "ThrottledException", "RequestThrottled"),
        *("RequestThrottledException", "EC2ThrottledException", "TooManyRequestsException", "SlowDown"),
        *("BandwidthLimitExceeded", "PriorRequestNotComplete"),
    }
)
#: The credentials are not (or no longer) valid: nothing was done.
LOGIN: Final = frozenset(
    {
        *("AuthFailure", "InvalidClientTokenId", "UnrecognizedClientException", "SignatureDoesNotMatch"),
        *("ExpiredToken", "ExpiredTokenException", "RequestExpired", "MissingAuthenticationToken"),
        *("InvalidAccessKeyId", "IncompleteSignature", "Blocked", "PendingVerification", "RequestTimeTooSkewed"),
    }
)
#: AWS has trouble of its own. Who knows what was done?
AWAY: Final = frozenset(
    {
        *("InternalError", "InternalFailure", "InternalServerError", "ServiceUnavailable", "Unavailable"),
        *("RequestTimeout", "RequestTimeoutException", "ServiceException"),
    }
)
#: The credentials are good, but not for this.
DENIED: Final = frozenset({"UnauthorizedOperation", "AccessDenied", "AccessDeniedException", "OperationNotPermitted"})
#: The remedy for each that has one.
REMEDIES: Final = {
    "AuthFailure": "check the credentials, and the clock of this machine",
    "RequestTimeTooSkewed": "correct the clock of this machine",
    "InvalidKeyPair.NotFound": "correct key-name of the label, or import the key pair in this region",
    "InvalidSubnetID.NotFound": "correct subnet-id of the pool",
    "InvalidSubnet": "correct subnet-id of the pool",
    "InvalidGroup.NotFound": "correct security-group-id of the pool",
    "InvalidGroupId.Malformed": "correct security-group-id of the pool",
    "InvalidAMIID.NotFound": "correct image-id, or upload the image again",
    "InvalidAMIID.Malformed": "correct image-id",
    "InvalidAMIID.Unavailable": "the image is gone: correct image-id, or upload it again",
    "InvalidParameterCombination": "check instance-type, image and volume of the label: they do not fit together",
    "VPCIdNotSpecified": "the account has no default VPC in the region: add subnet-id to the pool",
    "MissingInput": "the account has no default VPC in the region: add subnet-id to the pool",
    "NoSuchBucket": "create the bucket, or correct bucket-name",
    "OptInRequired": "accept the terms of the image in the AWS Marketplace, or enable the region",
    "PendingVerification": "AWS still checks the account",
}
#: In the codes for what is not there, or cannot be there because no id looks like that.
_ABSENT: Final = (".NotFound", ".Malformed", "NoSuch", "ResourceNotFound")
_INSTANCE_IDS: Final = re.compile(r"\bi-[0-9a-f]+\b")


class AwsNotFound(CloudSetup, CloudNotFound):
    """The object of the call does not exist. In a launch it is something that the configuration names."""


def meaning(head: str, code: str, message: str, status: int) -> CloudRefused | CloudAway:
    """The exception for an error that AWS answers with.

    :param head: whose call it was, and which.
    :param status: of HTTP.
    """
    text = f"{head}: {code}: {one_line(message)}"
    remedy = REMEDIES.get(code)
    if code in THROTTLED or status == 429:
        return CloudAway(text, maybe_done=False, code=code)
    if code in LOGIN:
        return CloudAway(f"{text}; {remedy or 'check the credentials'}", maybe_done=False, code=code)
    if code in QUOTA:
        return CloudQuota(f"{text}; ask for more under Service Quotas, or lower max-servers", code=code)
    if code in CAPACITY:
        return CloudNoCapacity(text, code=code)
    if not code:
        # All errors of AWS have codes. Without one it is the page of a proxy, which proves nothing.
        said = f"{head}: status {status} without a code {one_line(message)}".rstrip()
        return CloudAway(f"{said}; {PROXY}", code=str(status))
    if code in AWAY or status >= 500:
        return CloudAway(text, code=code)
    if code in DENIED:
        return CloudSetup(f"{text}; allow it in the IAM policy of the credentials", code=code)
    if any(word in code for word in _ABSENT):
        return AwsNotFound(f"{text}; {remedy}" if remedy else text, code=code)
    if remedy:
        return CloudSetup(f"{text}; {remedy}", code=code)
    return CloudRefused(text, code=code)


def instance_ids_in(text: str) -> set[str]:
    """Ids of instances that an error names."""
    return set(_INSTANCE_IDS.findall(text))


def instance_of_fleet(head: str, answer: Mapping[str, Any]) -> str:
    """The id of the instance of an answer of CreateFleet.

    :param head: whose call it was, and which.
    :raises CloudRefused: there is none: no room if one of the types may have some later, a limit if one of them waits
        for that, else the first error.
    """
    for group in answer.get("Instances") or ():
        for instance_id in group.get("InstanceIds") or ():
            return str(instance_id)
    listed = [(str(one.get("ErrorCode", "")), str(one.get("ErrorMessage", ""))) for one in answer.get("Errors") or ()]
    errors = {(code, text): meaning(head, code, text, 200) for code, text in listed}
    if not errors:
        # What became of it, lists will show.
        raise CloudAway(f"{head}: the answer has neither an instance nor an error")
    # The first of the best kind.
    kinds = (CloudNoCapacity, CloudQuota, Exception)
    chosen = next(error for kind in kinds for error in errors.values() if isinstance(error, kind))
    others = [f"{code}: {text}" for (code, text), error in errors.items() if error is not chosen]
    if others:
        chosen.args = (f"{chosen}; of other types: {'; '.join(others)}", *chosen.args[1:])
    raise chosen
