# SPDX-License-Identifier: Apache-2.0
"""A look at, and a hand in, the znodes that launchers and clients share (reference/zookeeper).

Plain Kazoo and no code of ours, so that a mistake of ours cannot hide itself.
"""

from __future__ import annotations

import json
import time
import uuid
from functools import partial
from typing import Any

from kazoo.exceptions import NoNodeError

from tests.support.image_znodes import ImageZnodes
from tests.support.wait import DEADLINE_SECONDS, present, wait_for

NODES = "/nodepool/nodes"
REQUESTS = "/nodepool/requests"
REQUEST_LOCKS = "/nodepool/requests-lock"
COMPONENTS = "/nodepool/components"
POOLS = f"{COMPONENTS}/pool"

#: A node that any request may have.
READY_NODE = json.dumps({"state": "ready", "type": ["small"]}).encode()


class PoolZnodes(ImageZnodes):
    """Those of nodes and requests, and those of images."""

    # -- looking

    def node(self, node_id: str) -> dict[str, Any] | None:
        return self.read(f"{NODES}/{node_id}")

    def node_now(self, node_id: str) -> dict[str, Any] | None:
        """As `node`, with all that was written until now: of several servers ours may be behind the leader."""
        self.kazoo.sync(f"{NODES}/{node_id}")
        return self.node(node_id)

    def nodes(self, state: str | None = None) -> dict[str, dict[str, Any]]:
        """All readable nodes by id, or those in one state."""
        found = {name: self.node(name) for name in self.children(NODES) if name != "lock"}
        return {name: node for name, node in found.items() if node and state in (None, node.get("state"))}

    def free_nodes(self) -> dict[str, dict[str, Any]]:
        """Nodes that a request could have: ready, not allocated, not locked."""
        ready = self.nodes("ready").items()
        return {name: node for name, node in ready if not node.get("allocated_to") and not self.node_lockers(name)}

    def node_lockers(self, node_id: str) -> list[str]:
        """Contenders for the lock of a node, by name of their znode."""
        return self.children(f"{NODES}/{node_id}/lock")

    def request(self, request_id: str) -> dict[str, Any] | None:
        return self.read(f"{REQUESTS}/{request_id}")

    def request_state(self, request_id: str) -> str | None:
        request = self.request(request_id)
        return None if request is None else request.get("state")

    def served(self, request_id: str, seconds: float = DEADLINE_SECONDS) -> list[dict[str, Any]]:
        """Waits until a request is fulfilled; returns its nodes, each with its ``id``."""
        ids = self.fulfilled(request_id, seconds=seconds)["nodes"]
        return [{"id": node_id, **(self.node(node_id) or {})} for node_id in ids]

    def request_lockers(self, request_id: str) -> list[str]:
        return self.children(f"{REQUEST_LOCKS}/{request_id}")

    def pools(self) -> list[dict[str, Any]]:
        """The registered pools."""
        return [pool for name in self.children(POOLS) if (pool := self.read(f"{POOLS}/{name}"))]

    def installation_id(self) -> str:
        """What stands on all that is made in clouds."""
        record = self.read("/nodepool/installation")
        assert record is not None
        return str(record["id"])

    # -- doing

    def submit(self, labels: list[str] | Any, priority: str = "200", **fields: Any) -> str:
        """Creates a request with the fields that Zuul sends (4.2) and returns its id."""
        now = time.time()
        request = {
            "requestor_data": {"build_set_uuid": None, "tenant_name": "tenant", "job_name": "job"},
            "node_types": labels,
            "requestor": "test",
            "created_time": now,
            "provider": None,
            "state": "requested",
            "state_time": now,
            "relative_priority": 0,
            "event_id": uuid.uuid4().hex,
            "tenant_name": "tenant",
            **fields,
        }
        return self.submit_raw(json.dumps(request).encode(), priority)

    def submit_raw(self, value: bytes, priority: str = "200") -> str:
        """Creates a request znode with any content and returns its id."""
        path: str = self.kazoo.create(f"{REQUESTS}/{priority}-", value, sequence=True, makepath=True)
        return path.rsplit("/", 1)[1]

    def fulfilled(self, *request_ids: str, seconds: float = DEADLINE_SECONDS) -> dict[str, Any]:
        """Waits until requests are fulfilled, and returns the last one."""

        def over(request_id: str) -> bool:
            state = self.request_state(request_id)
            assert state == "fulfilled", f"it is {state}"
            return True

        for request_id in request_ids:
            wait_for(f"{request_id} is fulfilled", partial(over, request_id), seconds)
        return present(self.request(request_ids[-1]))

    def use_and_return(self, *request_ids: str) -> None:
        """Do what a client does with fulfilled requests whose jobs are short."""
        for request_id in request_ids:
            request = present(self.request(request_id))
            # In this order: a node that is free for a moment is somebody else's.
            for node_id in request["nodes"]:
                self.change_node(node_id, state="used")
            self.delete_request(request_id)

    def change_request(self, request_id: str, **fields: Any) -> None:
        """Changes fields of a request."""
        request = {**(self.request(request_id) or {}), **fields}
        self.kazoo.set(f"{REQUESTS}/{request_id}", json.dumps(request).encode())

    def delete_request(self, request_id: str) -> None:
        """Removes a request as a client does; it may be gone already."""
        try:
            self.kazoo.delete(f"{REQUESTS}/{request_id}")
        except NoNodeError:
            return

    def create_node(self, value: bytes) -> str:
        """Creates a node znode with any content and returns its id."""
        path: str = self.kazoo.create(f"{NODES}/", value, sequence=True, makepath=True)
        return path.rsplit("/", 1)[1]

    def add_node(self, state: str, **fields: Any) -> str:
        """Creates a node of pool ``main`` of provider ``one`` and returns its id."""
        node = {"state": state, "state_time": time.time(), "type": ["small"], "provider": "one", "pool": "main"}
        return self.create_node(json.dumps({**node, **fields}).encode())

    def change_node(self, node_id: str, **fields: Any) -> None:
        """Changes fields of a node."""
        self.kazoo.set(f"{NODES}/{node_id}", json.dumps({**(self.node(node_id) or {}), **fields}).encode())

    def vanish(self, node_id: str) -> None:
        """Removes a node with its lock at one blow, whoever holds it."""
        path = f"{NODES}/{node_id}"
        change = self.kazoo.transaction()
        for lock in self.node_lockers(node_id):
            change.delete(f"{path}/lock/{lock}")
        if self.kazoo.exists(f"{path}/lock"):
            change.delete(f"{path}/lock")
        change.delete(path)
        for answer in change.commit():
            if isinstance(answer, Exception):
                raise answer
