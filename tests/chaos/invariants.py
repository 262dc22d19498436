# SPDX-License-Identifier: Apache-2.0
"""What must hold during a run and after it."""

from __future__ import annotations

import errno
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from kazoo.exceptions import KazooException

from tests.chaos import providers
from tests.chaos.audit import Audit
from tests.chaos.deadline import Deadline
from tests.chaos.events import Violations
from tests.chaos.launcher_logs import exceeded_quota, parts_of, tracebacks, used_up
from tests.chaos.load import Load
from tests.chaos.registrations import Registrations
from tests.chaos.transaction_log import read_writes
from tests.chaos.usage import Usage, grown
from tests.chaos.world import CHROOT, PARTS, PROVIDER, TENANT, Limits, World, own_label
from tests.support.pool_znodes import NODES, REQUEST_LOCKS, REQUESTS

LOOK_SECONDS = 0.25
#: From the failure of a request until the client has heard of it.
MOMENT_SECONDS = 0.5
SERVE_SECONDS = 30.0
#: A static node in such a state has left its slot, or may leave it at any moment.
GOING = ("used", "deleting", "deleted")


class Watcher:
    """Looks while the faults happen; its own thread.

    The simulator itself notes peaks and doubles with every creation; here is what takes both sides to see.
    """

    def __init__(self, world: World, load: Load, violations: Violations) -> None:
        self._world = world
        self._load = load
        self._violations = violations
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="invariants")
        self._allocated: dict[str, tuple[str, ...]] = {}
        #: Servers without a node that we know of because a hand made them so: they may come on top of the limits.
        self.orphaned = 0
        self.peak_tenant = 0
        self.registrations = Registrations()
        #: The same server twice in a row without its job's node: a look at two places is not one moment.
        self._missing: set[str] = set()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(LOOK_SECONDS):
            for look in (self._look_at_launchers, self._look_at_requests, self._look_at_cloud):
                try:
                    look()
                except (KazooException, OSError) as error:
                    self._world.note(f"watcher: {error!r}")

    def _look_at_launchers(self) -> None:
        self.registrations.note(self._world.now(), self._world.registered())

    def _look_at_cloud(self) -> None:
        held = dict(self._load.held)
        servers = self._world.cloud.servers()
        alive = {server["metadata"].get("nodepool_node_id") for server in servers}
        nodes = self._world.znodes.nodes()
        self.look_at_limits(servers, nodes)
        missing = set(held) - alive - self._load.disturbed - providers.static_nodes(nodes)
        for node_id in missing & self._missing & set(self._load.held):
            self._violations.add(f"the server of node {node_id} is gone while its job {held[node_id]} runs")
        self._missing = missing

    def look_at_limits(self, servers: Sequence[Mapping[str, Any]], nodes: Mapping[str, Mapping[str, Any]]) -> None:
        """Is there more than there may be?

        :param servers: as `SimulatorClient.servers`; ``nodes``: all records by id.
        """
        self._look_at_places(nodes)
        alive = {server["metadata"].get("nodepool_node_id") for server in servers}
        tenants = Counter(node.get("tenant_name") for name, node in nodes.items() if name in alive)
        self.peak_tenant = max(self.peak_tenant, tenants[TENANT])
        if tenants[TENANT] > self._world.limits.tenant + self.orphaned:
            self._violations.add(f"tenant limit exceeded: {tenants[TENANT]} servers")
        self.look_at_counters()

    def _look_at_places(self, nodes: Mapping[str, Mapping[str, Any]]) -> None:
        standing = {name: node for name, node in nodes.items() if node.get("state") not in GOING}
        for place, count in providers.places_of(standing.values()).items():
            if count > 1:
                self._violations.add(f"slot {place} has {count} nodes")

    def look_at_counters(self) -> None:
        """What the simulator counts with every creation."""
        state, limits = self._world.cloud.state(), self._world.limits
        for node_id in state["double_nodes"]:
            self._violations.add(f"two servers for node {node_id}")
        for bug in state["bugs"]:
            self._violations.add(f"bug in the simulator: {bug}")
        more = self.orphaned
        for name, peak, limit in (
            ("max-servers", state["peak_by_provider"].get(PROVIDER, 0), limits.servers + more),
            ("max-cores", state["peak_cores_by_provider"].get(PROVIDER, 0), limits.cores + 2 * more),
            ("max-ram", state["peak_ram_by_provider"].get(PROVIDER, 0), limits.ram + self._world.largest_ram * more),
            (
                "max-servers of the others",
                state["peak_by_provider"].get(providers.PROVIDER, 0),
                providers.SERVERS + more,
            ),
        ):
            if peak > limit:
                self._violations.add(f"{name} exceeded: {peak}, limit {limit}")

    def _look_at_requests(self) -> None:
        owners: dict[str, str] = {}
        for request_id in self._world.znodes.children(REQUESTS):
            request = self._world.znodes.request(request_id)
            # The nodes of a part go to the whole request, and the part stays for a moment.
            if not request or request.get("state") != "fulfilled" or request.get("requestor") == PARTS:
                continue
            nodes = tuple(request.get("nodes") or ())
            before = self._allocated.setdefault(request_id, nodes)
            if before != nodes:
                self._violations.add(f"request {request_id} was served twice: {before}, {nodes}")
            for node_id in nodes:
                if owners.setdefault(node_id, request_id) != request_id:
                    self._violations.add(f"node {node_id} is in requests {owners[node_id]} and {request_id}")


class Aftermath:
    """What must hold when all faults are over."""

    def __init__(self, world: World, load: Load, violations: Violations) -> None:
        self._world = world
        self._load = load
        self._violations = violations

    def wait_clean(self, deadline: Deadline) -> dict[str, Any]:
        """Blocks until nothing is left, or time is up; returns what is still there."""
        left, before = self.left_over(), None
        while left and not deadline.passed():
            if set(left) != before:
                self._world.note(f"left: {left}"[:600])
                before = set(left)
            threading.Event().wait(LOOK_SECONDS)
            left = self.left_over()
        return left

    def check_clean(self, deadline: Deadline) -> dict[str, Any]:
        """As `wait_clean`; what is still there must not be."""
        left = self.wait_clean(deadline)
        for what, which in left.items():
            self._violations.add(f"left after {deadline.elapsed:.0f} s: {what}: {str(which)[:400]}")
        return left

    def left_over(self) -> dict[str, Any]:
        """What is there and should not; empty when all is well. Ready nodes that nobody has are no left-overs."""
        try:
            znodes = self._world.znodes
            all_free = znodes.free_nodes()
            names = [name for name in znodes.children(NODES) if name not in all_free and name != "lock"]
            places = providers.places_of(all_free.values())
            free = set(all_free) - providers.static_nodes(all_free)
            servers = self._world.cloud.servers()
            nodes = [server["metadata"].get("nodepool_node_id") for server in servers]
            left: dict[str, Any] = {
                "nodes": {name: (znodes.node(name) or {}).get("state", "unreadable") for name in names},
                "requests": {name: znodes.request_state(name) for name in znodes.children(REQUESTS)},
                "lock directories": znodes.children(REQUEST_LOCKS),
                "servers of nodes": [node_id for node_id in nodes if node_id not in free],
                "ready nodes without a server": sorted(free - set(nodes) - self._load.disturbed),
                "two servers": [node_id for node_id in free if nodes.count(node_id) > 1],
            }
            if places != providers.all_places():
                left["slots of static hosts"] = dict(places)
            contents = self._world.contents()
            # One port each.
            left["ports"] = contents["ports"] - contents["servers"]
            # Those of free nodes are no left-overs either.
            for kind, label in (("floating_ips", providers.FLOATING), ("volumes", providers.VOLUME)):
                left[kind] = max(0, contents[kind] - sum(label in node["type"] for node in all_free.values()))
        except (KazooException, OSError) as error:
            return {"error": repr(error)}
        return {what: which for what, which in left.items() if which}

    def check_serving(self) -> None:
        """Every launcher serves what only it can serve; and whatever else there is, is served."""
        for number, launcher in enumerate(self._world.launchers):
            if not launcher.running:
                self._violations.add(f"launcher {number} does not run, exit status {launcher.returncode}")
                continue
            result = self._load.one(own_label(number), SERVE_SECONDS)
            if result != "done":
                self._violations.add(f"launcher {number} does not serve: {result}")
        for label in (providers.VOLUME, providers.FLOATING, providers.STATIC):
            if (result := self._load.one(label, SERVE_SECONDS)) != "done":
                self._violations.add(f"nobody serves {label}: {result}")

    def check_usage(self, before: Sequence[Usage]) -> list[dict[str, int]]:
        """Threads, files and memory of the launchers are about what they were before the faults; returns them."""
        if not all(launcher.running for launcher in self._world.launchers):
            return []
        after = [launcher.usage() for launcher in self._world.launchers]
        for text in grown(before, after, self._world.limits.servers / Limits.servers):
            self._violations.add(text)
        return after

    def check_failures(self, registrations: Registrations) -> None:
        """A request only fails after all attempts of a launch were used up, or when nobody knows who could serve it."""
        own = {own_label(number): number for number in range(len(self._world.launchers))}
        for request_id, (labels, when) in self._load.failed.items():
            if self._world.disk_was_full(when):
                # The proof may be what did not fit.
                continue
            if any(registrations.forgotten(own[label], when - MOMENT_SECONDS) for label in labels if label in own):
                self._world.note(f"request {request_id} for {labels} failed: nobody knew of that launcher")
                continue
            logs = [launcher.log_text().splitlines() for launcher in self._world.launchers]
            ids = set[str]().union(*(parts_of(lines, request_id) for lines in logs))
            if self._world.quota_was_cut(when) and any(exceeded_quota(lines, one) for lines in logs for one in ids):
                # The other provider in the same cloud used all that was left of the quota.
                self._world.note(f"request {request_id} for {labels} failed: too little quota")
                continue
            if not any(used_up(lines, one) for lines in logs for one in ids):
                self._violations.add(f"request {request_id} failed although no launch used up its attempts")

    def check_logs(self) -> None:
        """No exception that nobody expected."""
        for number, launcher in enumerate(self._world.launchers):
            for last in sorted(set(tracebacks(launcher.log_text().splitlines()))):
                # What logging itself says of a full disk.
                if not last.startswith(f"OSError: [Errno {errno.EFBIG}]"):
                    self._violations.add(f"traceback in the log of launcher {number}: {last}")

    def check_writes(self) -> dict[str, int]:
        """No launcher wrote what it had not locked, says ZooKeeper; returns how many writes there were of each kind."""
        audit = Audit(CHROOT).follow(read_writes(self._world.transaction_logs()))
        for text in audit.violations:
            self._violations.add(text)
        return dict(audit.counts)
