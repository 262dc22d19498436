# SPDX-License-Identifier: Apache-2.0
"""A module of 11.0.0 that drivers written for it import: other names of what is in `nodepool.exceptions`."""

from nodepool.exceptions import ZKConnectionError as NoClientException
from nodepool.exceptions import ZKException as NodepoolZooKeeperException
from nodepool.exceptions import ZKLockException as LockException

__all__ = ["LockException", "NoClientException", "NodepoolZooKeeperException"]
