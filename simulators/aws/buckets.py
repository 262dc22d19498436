# SPDX-License-Identifier: Apache-2.0
"""The token buckets that AWS documents, one for each operation.

EC2: https://docs.aws.amazon.com/ec2/latest/devguide/ec2-api-throttling.html. RunInstances and TerminateInstances have a
second one for the instances that they are about. Service Quotas says "a few per 10 seconds".
"""

from __future__ import annotations

from typing import Final

from simulators.base.messages import ApiError, Json
from simulators.base.throttle import CallBucket, Throttle

READS: Final = CallBucket(100, 20)
#: Lists without filters and without MaxResults.
WHOLE_LISTS: Final = CallBucket(50, 10)
CHANGES: Final = CallBucket(50, 5)
REQUESTS: Final = {
    "ec2.RunInstances": CallBucket(5, 2),
    "ec2.TerminateInstances": CallBucket(100, 5),
    "ec2.CreateTags": CallBucket(100, 10),
    "ec2.DeleteTags": CallBucket(100, 10),
    "ec2.GetConsoleOutput": CallBucket(100, 10),
    "servicequotas.*": CallBucket(10, 2),
    "ebs.PutSnapshotBlock": CallBucket(1000, 1000),
}
INSTANCES: Final = {"ec2.RunInstances": CallBucket(1000, 2), "ec2.TerminateInstances": CallBucket(1000, 20)}
_READING: Final = ("Describe", "Get", "List", "Search")
_WHOLE: Final = (
    "DescribeInstances",
    "DescribeVolumes",
    "DescribeSnapshots",
    "DescribeImages",
    "DescribeInstanceStatus",
)


def request_bucket(operation: str, arguments: Json) -> CallBucket:
    """The bucket of an operation such as ``ec2.RunInstances``."""
    service, _, name = operation.partition(".")
    if found := REQUESTS.get(operation) or REQUESTS.get(f"{service}.*"):
        return found
    if not name.startswith(_READING):
        return CHANGES
    whole = name in _WHOLE and not any(key in arguments for key in ("Filters", "MaxResults", "InstanceIds", "ImageIds"))
    return WHOLE_LISTS if whole else READS


def take(throttle: Throttle, operation: str, arguments: Json) -> None:
    """Takes the tokens of a call.

    :raises ApiError: 503, there are too few.
    """
    wanted = {operation: (request_bucket(operation, arguments), 1.0)}
    if operation in INSTANCES:
        number = arguments.get("MaxCount") or len(arguments.get("InstanceIds", ()))
        wanted[f"{operation} instances"] = (INSTANCES[operation], float(number))
    if throttle.take(wanted) is not None:
        raise ApiError(503, "Request limit exceeded.", "RequestLimitExceeded")
