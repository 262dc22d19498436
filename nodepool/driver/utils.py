# SPDX-License-Identifier: Apache-2.0
"""Helpers that drivers share (reference/driver 12). The import path is public; the parts live beside it."""

from nodepool.driver.framework.node_tasks import NodeDeleter, NodeLauncher
from nodepool.driver.framework.quota_support import QuotaSupport
from nodepool.driver.framework.rate import LazyExecutorTTLCache, RateLimiter
from nodepool.driver.framework.rate_classes import RateClasses
from nodepool.driver.framework.token_bucket import BucketSize
from nodepool.driver.framework.upload import ImageUploader
from nodepool.model.quota import QuotaInformation

__all__ = [
    "BucketSize",
    "ImageUploader",
    "LazyExecutorTTLCache",
    "NodeDeleter",
    "NodeLauncher",
    "QuotaInformation",
    "QuotaSupport",
    "RateClasses",
    "RateLimiter",
]
