# SPDX-License-Identifier: Apache-2.0
"""What the error codes of AWS mean, in the words of `nodepool.exceptions` (AW-16, CM-6). Pure."""

from __future__ import annotations

import re
from typing import Final

from nodepool.exceptions import (
    CapacityException,
    CloudUnavailableException,
    LaunchError,
    LaunchNodepoolException,
    NotFound,
    QuotaException,
)

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
        *("InvalidAccessKeyId", "IncompleteSignature", "Blocked", "PendingVerification"),
    }
)
#: AWS has trouble of its own. Who knows what was done?
AWAY: Final = frozenset(
    {"InternalError", "InternalFailure", "InternalServerError", "ServiceUnavailable", "Unavailable"}
)
#: The credentials are good, but not for this.
DENIED: Final = frozenset({"UnauthorizedOperation", "AccessDenied", "AccessDeniedException", "OperationNotPermitted"})
#: The remedy for each that has one.
REMEDIES: Final = {
    "AuthFailure": "check the credentials, and the clock of this machine",
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
_MAX_TEXT: Final = 500
_INSTANCE_IDS: Final = re.compile(r"\bi-[0-9a-f]+\b")


class AwsRefused(LaunchError):
    """AWS understood a call and refused it: the same again will not help.

    :param code: of AWS.
    """

    def __init__(self, text: str, code: str) -> None:
        super().__init__(text)
        self.code = code


class AwsSetup(AwsRefused, LaunchNodepoolException):
    """Something that the configuration names is not there."""

    statsd_key = LaunchNodepoolException.statsd_key


class AwsNotFound(AwsSetup, NotFound):
    """What the call was about is not there."""


class AwsQuota(AwsRefused, QuotaException):
    """A limit of the account is used up."""

    statsd_key = QuotaException.statsd_key


class AwsNoCapacity(AwsRefused, CapacityException):
    """AWS has no room."""

    statsd_key = CapacityException.statsd_key


class AwsAway(CloudUnavailableException):
    """No answer, or one that says nothing.

    :param maybe_done: AWS may have got the call and carried it out.
    """

    def __init__(self, text: str, maybe_done: bool = True, code: str = "") -> None:
        super().__init__(text)
        self.maybe_done = maybe_done
        self.code = code


def meaning(head: str, code: str, message: str, status: int) -> AwsRefused | AwsAway:
    """The exception for an error that AWS answers with.

    :param head: whose call it was, and which.
    :param status: of HTTP.
    """
    text = f"{head}: {code}: {one_line(message)}"
    remedy = REMEDIES.get(code)
    if code in THROTTLED or status == 429:
        return AwsAway(text, maybe_done=False, code=code)
    if code in LOGIN:
        return AwsAway(f"{text}; {remedy or 'check the credentials'}", maybe_done=False, code=code)
    if code in QUOTA:
        return AwsQuota(f"{text}; ask for more under Service Quotas, or lower max-servers", code)
    if code in CAPACITY:
        return AwsNoCapacity(text, code)
    if code in AWAY or status >= 500:
        return AwsAway(text, code=code)
    if code in DENIED:
        return AwsSetup(f"{text}; allow it in the IAM policy of the credentials", code)
    if any(word in code for word in _ABSENT):
        return AwsNotFound(f"{text}; {remedy}" if remedy else text, code)
    if remedy:
        return AwsSetup(f"{text}; {remedy}", code)
    return AwsRefused(text, code)


def one_line(text: str) -> str:
    """Without line breaks, and not too long."""
    line = " ".join(text.split())
    return line if len(line) <= _MAX_TEXT else f"{line[: _MAX_TEXT - 3]}..."


def instance_ids_in(text: str) -> set[str]:
    """Ids of instances that an error names."""
    return set(_INSTANCE_IDS.findall(text))
