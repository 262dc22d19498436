# SPDX-License-Identifier: Apache-2.0
"""What must hold after each step of the simulated world, and what at its end (the invariants of issue 5)."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

from nodepool.driver.metastatic.backing import place_of
from nodepool.driver.statemachine.instance import NODE_KEY, POOL_KEY
from nodepool.model import states
from nodepool.model.reasons import ReasonCode
from nodepool.plan.triage import LOCKED, MIN_READY_REQUESTOR, Stage
from nodepool.zk import paths
from nodepool.zk.connection import DELETED
from tests.model.explanation_check import ExplanationCheck
from tests.model.launcher import Launcher
from tests.model.layout import CLOUD, LAB, SLICES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nodepool.launcher.pool.worker import PoolWorker
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
        self._explanations = ExplanationCheck(world)

    # -- after each commit --

    def committed(self, changes: Sequence[Change]) -> None:
        for change in changes:
            name = change.path.rpartition("/")[2]
            if change.path == paths.request(name):
                self._request_changed(change, name)
            elif change.path == paths.node(name):
                self._node_changed(change, name)
                self._look_at_slots()

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
        if record is None or record["state"] != states.IN_USE:
            self._look_at_guests(change, node_id)

    def _look_at_guests(self, change: Change, node_id: str) -> None:
        """A backing node stays as long as nodes on it are in use."""
        for node in [node for nodes in self._world.zuul.held.values() for node in nodes]:
            if node.provider == SLICES and (place_of(node) or ("", 0))[0] == node_id:
                self._world.violation(f"{change.session.name} took backing node {node_id} of node {node.id}, in use")

    # -- after each step --

    def look(self) -> None:
        """Invariant 3: limits of the cloud, and never two servers of a node."""
        cloud = self._world.cloud
        creates = cloud.creations
        if creates == self._creates:
            return
        self._creates = creates
        servers = cloud.servers()
        self._look_at_limits(Counter(server.metadata[POOL_KEY] for server in servers))
        nodes = [server.metadata[NODE_KEY] for server in servers]
        if len(set(nodes)) < len(nodes):
            self._world.violation(f"two servers of one node: {nodes}")
        self._look_at_tenant()

    def _look_at_limits(self, servers: Counter[str]) -> None:
        """The limits of the configurations that were in force: what was begun under one goes on under the next."""
        limits: dict[str, float] = {}
        for layout in self._world.layouts:
            for pool in layout.pools:
                limits[pool.name] = max(limits.get(pool.name, 0), pool.max_servers)
        for name, count in servers.items():
            if count > limits[name]:
                self._world.violation(f"{count} servers in pool {name}, the limit is {limits[name]}")
        limit = max(layout.limit for layout in self._world.layouts)
        if servers.total() > limit:
            self._world.violation(f"{servers.total()} servers, the limit of the cloud is {limit}")

    def _nodes(self) -> dict[str, dict[str, Any] | None]:
        return {name: self._record(paths.node(name)) for name in self._world.server.children(paths.NODES)}

    def _look_at_slots(self) -> None:
        """A slot, of a host or of a backing node, never has two nodes."""
        if not self._world.setup.hosts and not self._world.setup.slices:
            return
        taken: dict[tuple[str, int], str] = {}
        for node_id, node in self._nodes().items():
            slot = None if node is None else slot_of(node)
            if slot is None:
                continue
            if slot in taken:
                self._world.violation(f"nodes {taken[slot]} and {node_id} are both in slot {slot}")
            taken[slot] = node_id

    def _look_at_tenant(self) -> None:
        """Invariant 3: a tenant has no more than its limit allows.

        A ready node that a launcher has only taken, to look then whether it may keep it, is not the tenant's yet: its
        server was there before.
        """
        tenant_limit = self._world.setup.tenant_limit
        if tenant_limit is None:
            return
        node_ids = {server.metadata[NODE_KEY] for server in self._world.cloud.servers()}
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

    # -- after each pass of a pool --

    def look_at_desk(self, pool: PoolWorker) -> None:
        """Each request that a pool knows has an explanation, and its stage is that of its handler."""
        found = pool.desk.snapshot()
        handlers = {handler.request.key: handler for handler in pool.handlers}
        for case in found.requests:
            handler = handlers.pop(case.request_id, None)
            if case.stage in (Stage.WAITING, Stage.DONE) or (case.stage in LOCKED) != (handler is not None):
                self._world.violation(f"{pool.name}: {case} with handler {handler}")
            if handler is not None and (handler.done or handler.progress.stage is not case.stage):
                self._world.violation(f"{pool.name}: {case}, its handler is {handler.progress.stage}")
        if handlers:
            self._world.violation(f"{pool.name}: {handlers} are not on its desk")
        for request_id in [case.request_id for case in found.requests] + pool.queue.ids():
            explanation = pool.desk.explain(request_id)
            if explanation is None or explanation.reason.code not in ReasonCode or not explanation.reason.text:
                self._world.violation(f"{pool.name}: request {request_id} has no explanation: {explanation}")
        self._explanations.look(pool)

    # -- when all faults are over --

    def look_at_quarantined(self) -> None:
        """S-17: no node of a host that an operator quarantined is free."""
        for name in self._world.server.children(paths.maintenance("host")):
            record = self._record(paths.maintenance("host", name))
            if record is None or record["automatic"]:
                continue
            for node_id, node in self._nodes().items():
                if node is None or node["hostname"] != name or node["allocated_to"] is not None:
                    continue
                if node["state"] == states.READY:
                    self._world.violation(f"node {node_id} of quarantined {name} is free")

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
            assert isinstance(launcher, Launcher)
            for worker in launcher.nodepool.pool_threads.current():
                if worker.handlers and not world.setup.min_ready:
                    world.violation(f"{worker.name} still has {worker.handlers}")
        pools = server.children("/nodepool/components/pool")
        if len(pools) != len(world.launchers) * world.layout.registrations():
            world.violation(f"registered pools: {pools}")

    def _nodes_at_the_end(self) -> None:
        world, server = self._world, self._world.server
        nodes = self._nodes()
        servers = {server.id: server for server in world.cloud.servers()}
        known = set()
        slots: set[tuple[str, int]] = set()
        ready: Counter[str] = Counter()
        # Slices that nobody wants any more may be left, and with them what they are on.
        backing = {
            place[0] for node in nodes.values() if node is not None and (place := backing_slot(node)) is not None
        }
        for node_id, node in nodes.items():
            if node is None:
                world.violation(f"node {node_id} has no data")
                continue
            server_id = world.cloud.server_of(node["external_id"]) if node["provider"] == CLOUD else node["external_id"]
            known.add(server_id)
            if node_id in backing and world.may_spare and node["state"] == states.IN_USE:
                continue
            if node["state"] != states.READY or node["allocated_to"] is not None:
                world.violation(f"node {node_id} is left over: {node['state']} for {node['allocated_to']}")
                continue
            if server.children(paths.node_lock(node_id)):
                world.violation(f"node {node_id} is locked")
            if node["provider"] == LAB:
                slots.add((node["hostname"], node["slot"]))
                continue
            ready[node["type"][0]] += 1
            if node["provider"] == CLOUD and server_id not in servers:
                world.violation(f"node {node_id} has no server")
        for external_id, instance in servers.items():
            if external_id not in known:
                world.violation(f"server {external_id} of node {instance.metadata[NODE_KEY]} has no node")
        if slots != world.layout.slots():
            world.violation(f"slots {sorted(slots)} have nodes, configured are {sorted(world.layout.slots())}")
        if not backing <= nodes.keys():
            world.violation(f"backing nodes {sorted(backing - nodes.keys())} are gone")
        self._look_at_min_ready(ready)

    def _look_at_min_ready(self, ready: Counter[str]) -> None:
        """M-6. Nodes of another label that were left over may take the room."""
        world = self._world
        pools = [pool.max_servers for pool in world.layout.pools if "small" in pool.labels]
        room = min(sum(pools), world.layout.limit)
        wanted = min(world.layout.min_ready, room)
        # A request that was given back for one of another pool leaves what that one cannot use; a request for a backing
        # node that is taken back at the last moment leaves that node.
        may_spare = world.may_spare or world.setup.pools > 1 or world.setup.slices > 0
        others = ready["large"] + ready["slice"]
        if ready["small"] < wanted - (others if may_spare else 0):
            world.violation(f"{ready} ready nodes, {world.layout.min_ready} are wanted")
        if not may_spare and (ready["small"] > wanted or others):
            world.violation(f"{ready} ready nodes, {world.layout.min_ready} are wanted")


def slot_of(node: dict[str, Any]) -> tuple[str, int] | None:
    """The slot that a node is in; None = its provider has none."""
    if node["provider"] == LAB:
        return node["hostname"], node["slot"]
    return backing_slot(node)


def backing_slot(node: dict[str, Any]) -> tuple[str, int] | None:
    """The same, of a backing node. One that is being launched or deleted has no claim to it."""
    if node["provider"] != SLICES or node["state"] not in (states.READY, states.IN_USE):
        return None
    data = node["driver_data"]
    return None if data is None else (data["backing_node"], data["slot"])
