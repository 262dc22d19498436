# SPDX-License-Identifier: Apache-2.0
"""State names of nodes, requests, image builds and uploads (reference/zookeeper 4.3, 5.2, 6)."""

from __future__ import annotations

from typing import Final

# Nodes
INIT: Final = "init"
BUILDING: Final = "building"
TESTING: Final = "testing"
READY: Final = "ready"
IN_USE: Final = "in-use"
USED: Final = "used"
HOLD: Final = "hold"
FAILED: Final = "failed"
ABORTED: Final = "aborted"
DELETING: Final = "deleting"
DELETED: Final = "deleted"

# Requests (FAILED is shared with nodes)
REQUESTED: Final = "requested"
PENDING: Final = "pending"
FULFILLED: Final = "fulfilled"

# Images (BUILDING, READY, FAILED and DELETING are shared with nodes)
UPLOADING: Final = "uploading"

#: Every node state, in the order in which metrics list them (reference/metrics 1).
NODE_STATES: Final = (
    BUILDING,
    TESTING,
    READY,
    IN_USE,
    USED,
    HOLD,
    DELETING,
    FAILED,
    INIT,
    ABORTED,
    DELETED,
)
REQUEST_STATES: Final = (REQUESTED, PENDING, FULFILLED, FAILED)
BUILD_STATES: Final = (BUILDING, READY, FAILED, DELETING)
UPLOAD_STATES: Final = (UPLOADING, READY, FAILED, DELETING)

#: An unlocked node in one of these states is removed (rule X-1).
DELETABLE_STATES: Final = frozenset({USED, IN_USE, BUILDING, FAILED, ABORTED, DELETING, DELETED})
