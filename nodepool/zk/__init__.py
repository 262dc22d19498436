# SPDX-License-Identifier: Apache-2.0
"""All access to ZooKeeper: records, locks, caches and watches (reference/zookeeper)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nodepool.late_names import late_names

if not TYPE_CHECKING:
    # Drivers written for 11.0.0 import these from here.
    __getattr__ = late_names(
        __name__, {"ZooKeeperBase": "nodepool.compat.modules", "ZooKeeperClient": "nodepool.zk.client"}
    )
