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

#: States of a node that is launched, and those in which a launch that lost it may find it.
_LAUNCH_STATES: Final = (INIT, BUILDING, TESTING, READY, FAILED, ABORTED, DELETING)
#: Every move of a node from what is stored to another state, with its reason. Zuul's are among them.
NODE_MOVES: Final[dict[tuple[str, str], str]] = {
    (INIT, BUILDING): "its launch begins",
    (INIT, TESTING): "its launch begins, of a driver with a look at the new machine",
    (INIT, READY): "it is there already",
    (BUILDING, TESTING): "its machine is there, and the driver has a look at it",
    (BUILDING, READY): "the launch succeeded",
    (TESTING, READY): "it was tested",
    (READY, IN_USE): "Zuul, or a metastatic provider, takes it",
    (IN_USE, USED): "Zuul, or a metastatic provider, returns it",
    (READY, USED): "it is returned without having been used",
    (HOLD, USED): "Zuul gives up a node that was held",
    **{(state, FAILED): "the launch failed, or its end could not be stored" for state in _LAUNCH_STATES},
    **{(state, ABORTED): "the launch had no room, or lost the node" for state in _LAUNCH_STATES},
    **{(state, HOLD): "Zuul or an operator wants to look at it" for state in NODE_STATES},
    **{(state, DELETING): "it is to go" for state in NODE_STATES},
    **{(state, DELETED): "it does not exist any more" for state in NODE_STATES},
}
#: The same for requests.
REQUEST_MOVES: Final[dict[tuple[str, str], str]] = {
    (REQUESTED, PENDING): "a pool serves it",
    (REQUESTED, FULFILLED): "ready nodes serve it at once",
    (REQUESTED, FAILED): "every pool has declined it",
    (PENDING, FULFILLED): "all its nodes are ready",
    (PENDING, FAILED): "every pool has declined it",
    (PENDING, REQUESTED): "the pool gave it back, declined it, or was removed",
    (FULFILLED, REQUESTED): "its end could not be stored",
    (FULFILLED, FAILED): "its end could not be stored",
    (FAILED, REQUESTED): "its end could not be stored",
    (FAILED, FULFILLED): "its end could not be stored, and then all its nodes were ready",
}


class ImpossibleState(ValueError):
    """A record cannot get this state after the one that it has. Nothing was changed; the code is wrong."""
