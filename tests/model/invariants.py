# SPDX-License-Identifier: Apache-2.0
"""What must hold after each step of the simulated world, and what at its end (the invariants of issue 5)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from nodepool.model import states
from nodepool.plan.queue import MIN_READY_REQUESTOR
from nodepool.zk import paths
from nodepool.zk.protocol import DELETED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.model.server import Change
    from tests.model.world import World


class Invariants:
    """Looks at what is committed, and at the cloud."""

    def __init__(self, world: World) -> None:
        self._world = world
        #: Requests that were fulfilled or failed, and how.
        self._ended: dict[str, str] = {}
        self._creates = 0
        #: Nodes that were free once, to be given to somebody later.
        self._were_free: set[str] = set()

    # -- after each commit --

    def committed(self, changes: Sequence[Change]) -> None:
        for change in changes:
            name = change.path.rpartition("/")[2]
            if change.path == paths.request(name):
                self._request_changed(change, name)
            elif change.path == paths.node(name):
                self._node_changed(change, name)

    def _record(self, path: str) -> dict[str, Any] | None:
        znode = self._world.server.znodes.get(path)
        if znode is None or not znode.data:
            return None
        found: dict[str, Any] = json.loads(znode.data)
        return found

    def _request_changed(self, change: Change, request_id: str) -> None:
        request = self._record(change.path)
        if request is None:
            return
        before, state = self._ended.get(request_id), request["state"]
        if before is not None and (before, state) != (states.FULFILLED, states.FULFILLED):
            self._world.violation(f"request {request_id} was {before}, and {change.session.name} made it {state}")
        if state == states.FULFILLED and before is None:
            if len(set(request["nodes"])) != len(request["node_types"]):
                self._world.violation(f"request {request_id} is fulfilled with nodes {request['nodes']}")
            for node_id in request["nodes"]:
                node = self._record(paths.node(node_id))
                if node is None or node["state"] != states.READY or node["allocated_to"] != request_id:
                    self._world.violation(f"request {request_id} is fulfilled with node {node_id}: {node}")
            self._look_at_tenant()
        if state in (states.FULFILLED, states.FAILED):
            self._ended[request_id] = state

    def _node_changed(self, change: Change, node_id: str) -> None:
        """Invariant 6: what a living client holds is touched by nobody else."""
        record = self._record(change.path)
        if record is not None and not record["tenant_name"]:
            self._were_free.add(node_id)
        zuul = self._world.zuul
        session = zuul.kazoo.session
        if session is None or not session.alive or change.session is session:
            return
        if any(node.id == node_id for nodes in zuul.held.values() for node in nodes):
            how = "deleted" if change.kind == DELETED else "changed"
            self._world.violation(f"{change.session.name} {how} node {node_id}, which is in use")

    # -- after each step --

    def look(self) -> None:
        """Invariant 3: limits of the cloud, and never two servers of a node."""
        cloud = self._world.cloud
        creates = cloud.calls["create"]
        if creates == self._creates:
            return
        self._creates = creates
        limit = self._world.setup.max_servers
        servers = [record.instance for record in cloud._records.values()]
        if len(servers) > limit:
            self._world.violation(f"{len(servers)} servers, the limit is {limit}")
        nodes = [server.metadata["nodepool_node_id"] for server in servers]
        if len(set(nodes)) < len(nodes):
            self._world.violation(f"two servers of one node: {nodes}")
        self._look_at_tenant()

    def _look_at_tenant(self) -> None:
        """Invariant 3: a tenant has no more than its limit allows.

        A ready node that a launcher has only taken, to look then whether it may keep it, is not the tenant's yet: its
        server was there before.
        """
        tenant_limit = self._world.setup.tenant_limit
        if tenant_limit is None:
            return
        servers = [record.instance for record in self._world.cloud._records.values()]
        node_ids = {server.metadata["nodepool_node_id"] for server in servers}
        of_tenant = [node_id for node_id in node_ids if self._is_of_tenant(node_id)]
        if len(of_tenant) > tenant_limit:
            self._world.violation(f"servers of {sorted(of_tenant)} for the tenant, its limit is {tenant_limit}")

    def _is_of_tenant(self, node_id: str) -> bool:
        node = self._record(paths.node(node_id))
        if node is None or not node["tenant_name"]:
            return False
        if node_id not in self._were_free or node["state"] != states.READY:
            return True
        request = self._record(paths.request(node["allocated_to"] or ""))
        return request is None or request["state"] == states.FULFILLED

    # -- at the end --

    def at_the_end(self) -> None:
        """Invariants 2 and 4."""
        world, server = self._world, self._world.server
        for request_id in world.zuul.waiting:
            world.violation(f"request {request_id} was never answered: {self._record(paths.request(request_id))}")
        for request_id in server.children(paths.REQUESTS):
            record = self._record(paths.request(request_id))
            if request_id != paths.LOCK and (record is None or record["requestor"] != MIN_READY_REQUESTOR):
                world.violation(f"request {request_id} is left over: {record}")
        left = [name for name in server.children(paths.REQUEST_LOCKS) if paths.request(name) not in server.znodes]
        if left:
            world.violation(f"lock directories of requests that are gone: {left}")
        self._nodes_at_the_end()
        for launcher in world.launchers:
            if not launcher.serving or not launcher.client.connected:
                world.violation(f"{launcher.name} does not serve")
            for worker in launcher.nodepool.workers():
                if worker.handlers and not world.setup.min_ready:
                    world.violation(f"{worker.name} still has {worker.handlers}")
        pools = server.children("/nodepool/components/pool")
        if len(pools) != len(world.launchers):
            world.violation(f"registered pools: {pools}")

    def _nodes_at_the_end(self) -> None:
        world, server = self._world, self._world.server
        nodes = {name: self._record(paths.node(name)) for name in server.children(paths.NODES)}
        servers = {record.instance.id: record.instance for record in world.cloud._records.values()}
        known = set()
        ready = 0
        for node_id, node in nodes.items():
            if node is None:
                world.violation(f"node {node_id} has no data")
                continue
            known.add(node["external_id"])
            if node["state"] != states.READY or node["allocated_to"] is not None:
                world.violation(f"node {node_id} is left over: {node['state']} for {node['allocated_to']}")
                continue
            ready += 1
            if server.children(paths.node_lock(node_id)):
                world.violation(f"node {node_id} is locked")
            if node["external_id"] not in servers:
                world.violation(f"node {node_id} has no server")
        for external_id, instance in servers.items():
            if external_id not in known:
                world.violation(f"server {external_id} of node {instance.metadata['nodepool_node_id']} has no node")
        wanted = min(world.setup.min_ready, world.setup.max_servers)
        if ready < wanted or (ready > wanted and not world.may_spare):
            world.violation(f"{ready} ready nodes, {world.setup.min_ready} are wanted")
