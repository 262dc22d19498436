# SPDX-License-Identifier: Apache-2.0
"""Helpers that drivers share (reference/driver 12). The import path is public; the parts live beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from nodepool.driver.framework.fact import LazyExecutorTTLCache
from nodepool.driver.framework.handler_hooks import NodeDeleter, NodeLauncher
from nodepool.driver.framework.quota_support import LIMITS_AGE_SECONDS, QuotaSupport
from nodepool.driver.framework.rate import BucketSize, RateClasses, RateLimiter
from nodepool.driver.framework.uploads import ImageUploader, Segment
from nodepool.late_names import late_names
from nodepool.model.node import QuotaInformation

__all__ = [
    "MAX_QUOTA_AGE",
    "BucketSize",
    "ImageUploader",
    "LazyExecutorTTLCache",
    "NodeDeleter",
    "NodeLauncher",
    "QuotaInformation",
    "QuotaSupport",
    "RateClasses",
    "RateLimiter",
    "Segment",
]

#: Seconds for which the limits of a cloud are kept.
MAX_QUOTA_AGE: Final = int(LIMITS_AGE_SECONDS)

if not TYPE_CHECKING:
    # Drivers written for 11.0.0 import these from here.
    __getattr__ = late_names(__name__, {"RateLimitInstance": "nodepool.compat.modules"})
