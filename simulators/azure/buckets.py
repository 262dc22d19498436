# SPDX-License-Identifier: Apache-2.0
"""The token buckets that Azure documents for a subscription, a principal and a region.

https://learn.microsoft.com/azure/azure-resource-manager/management/request-limits-and-throttling; for the compute
provider https://learn.microsoft.com/azure/virtual-machines/compute-throttling-limits.
"""

from __future__ import annotations

import math
from typing import Final

from simulators.base.messages import Answer, ApiError
from simulators.base.throttle import CallBucket, Throttle

READS: Final = CallBucket(250, 25)
WRITES: Final = CallBucket(200, 10)
DELETES: Final = CallBucket(200, 10)
_OF_METHOD: Final = {"PUT": ("writes", WRITES), "POST": ("writes", WRITES), "DELETE": ("deletes", DELETES)}


def _bucket(method: str) -> tuple[str, CallBucket]:
    return _OF_METHOD.get(method, ("reads", READS))


def take(throttle: Throttle, method: str) -> None:
    """Takes the token of a call.

    :raises ApiError: 429, there is none.
    """
    name, bucket = _bucket(method)
    if throttle.take({name: (bucket, 1.0)}) is None:
        return
    seconds = max(1, math.ceil((1.0 - throttle.level(name, bucket)) / bucket.refill))
    text = f"Number of {name} for subscription exceeded the limit. Please try again after '{seconds}' seconds."
    raise ApiError(429, text, "SubscriptionRequestsThrottled", {"Retry-After": str(seconds)})


def tell(throttle: Throttle, method: str, answer: Answer) -> None:
    """Adds the header that says how many calls are left."""
    name, bucket = _bucket(method)
    answer.headers[f"x-ms-ratelimit-remaining-subscription-{name}"] = str(int(throttle.level(name, bucket)))
