# SPDX-License-Identifier: Apache-2.0
"""How each kind of fault is done, and undone."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from random import Random
from typing import Any

from kazoo.exceptions import NotEmptyError

from tests.chaos.doomed_client import DoomedClient
from tests.chaos.events import Violations
from tests.chaos.fault_runner import FaultRunner
from tests.chaos.host_faults import HostFaults
from tests.chaos.invariants import Watcher
from tests.chaos.load import Load
from tests.chaos.network_faults import LinkFaults, ZooKeeperFaults
from tests.chaos.schedule import Fault
from tests.chaos.world import PARTS, World
from tests.support.pool_znodes import NODES, REQUESTS

#: How long "...-in-launch" waits for a launch to hit.
LAUNCH_SECONDS = 3.0
#: How long the requests of a killed client stay.
SUCCESSOR_SECONDS = 3.0


class Injector(FaultRunner):
    """Does the faults of a schedule, each in its time; `run` blocks until all have ended."""

    def __init__(self, world: World, load: Load, watcher: Watcher, violations: Violations, seed: int) -> None:
        super().__init__(world, violations)
        self._world = world
        self._load = load
        self._watcher = watcher
        self._random = Random(f"victims {seed}")
        #: Settings of the cloud that faults have changed.
        self._rules: dict[Fault, dict[str, Any]] = {}
        self._knobs_lock = threading.Lock()
        host = HostFaults(world, lambda target: self._targets[target])
        self._places = [host, LinkFaults(world), ZooKeeperFaults(world, seed)]
        #: A launcher reports a record that it cannot read, and leaves it to the operator.
        self._corrupted: list[str] = []
        self._reloads = 0

    def put_right(self) -> None:
        """Ends builds that are stuck, removes records that cannot be read."""
        self._world.cloud.release_stuck()
        kazoo = self._world.znodes.kazoo
        for node_id in self._corrupted:
            while kazoo.exists(f"{NODES}/{node_id}"):
                # A launcher may make a lock below it meanwhile.
                with contextlib.suppress(NotEmptyError):
                    kazoo.delete(f"{NODES}/{node_id}", recursive=True)

    # -- launchers

    def _launcher(self, fault: Fault) -> Any:
        assert fault.launcher is not None
        return self._world.launchers[fault.launcher]

    def _wait_for_launch(self) -> str:
        """Waits until somebody builds a node; returns its id, or nothing."""
        deadline = time.monotonic() + LAUNCH_SECONDS
        while time.monotonic() < deadline:
            building = list(self._world.znodes.nodes("building"))
            if building:
                return f"building {building}"
            threading.Event().wait(0.01)
        return "nothing was building"

    def _kill(self, fault: Fault) -> None:
        self._launcher(fault).kill()
        self._pause(fault)
        self._launcher(fault).start()

    def _kill_in_launch(self, fault: Fault) -> str:
        what = self._wait_for_launch()
        self._kill(fault)
        return what

    def _kill_with_parts(self, fault: Fault) -> str:
        """Whichever launcher it is: it may hold the request, serve a part, both or nothing of it."""
        state = self._random.choice(("requested", "pending", "fulfilled"))
        deadline, found = time.monotonic() + LAUNCH_SECONDS, False
        while not found and time.monotonic() < deadline:
            records = [self._world.znodes.request(name) or {} for name in self._world.znodes.children(REQUESTS)]
            found = any(record.get("requestor") == PARTS and record["state"] == state for record in records)
        self._kill(fault)
        return f"a part was {state}" if found else f"no part was {state}"

    def _freeze(self, fault: Fault) -> None:
        self._launcher(fault).send_signal(signal.SIGSTOP)
        self._pause(fault)
        self._launcher(fault).send_signal(signal.SIGCONT)

    def _freeze_in_launch(self, fault: Fault) -> str:
        what = self._wait_for_launch()
        self._freeze(fault)
        return what

    def _terminate(self, fault: Fault) -> str:
        status = self._launcher(fault).stop(seconds=30)
        self._pause(fault)
        self._launcher(fault).start()
        return f"exit status {status}"

    def _reload(self, fault: Fault) -> None:
        assert fault.launcher is not None
        # The launcher sees it by itself; the provider is replaced in the middle of what it does.
        self._reloads += 1
        self._world.configure(fault.launcher, 15 + self._reloads % 3)

    # -- the cloud

    def _change(self, fault: Fault, **rules: Any) -> None:
        """Settings for the time of the fault; those of other faults stay."""
        with self._knobs_lock:
            self._rules[fault] = rules
            self._apply()
        self._pause(fault)
        with self._knobs_lock:
            del self._rules[fault]
            self._apply()

    def _apply(self) -> None:
        knobs: dict[str, Any] = {
            "errors": [],
            "boots": [],
            "deletes": [],
            "hidden_rate": 0.0,
            "hidden_seconds": [0.3, 3.0],
            "port_leak_rate": 0.0,
            "volume_leak_rate": 0.0,
            "quota": {"instances": 10000},
        }
        for rules in self._rules.values():
            for name, value in rules.items():
                knobs[name] = knobs[name] + value if isinstance(value, list) else value
        self._world.cloud.change(**knobs)

    def _cloud_away(self, fault: Fault) -> None:
        self._change(fault, errors=[{"operation": "*", "kind": "503"}])

    def _cloud_frozen(self, fault: Fault) -> None:
        self._world.signal_cloud(signal.SIGSTOP)
        self._pause(fault)
        self._world.signal_cloud(signal.SIGCONT)

    def _cloud_errors(self, fault: Fault) -> None:
        half = fault.amount / 2
        rules = [{"operation": "*", "kind": "500", "rate": half}, {"operation": "*", "kind": "html", "rate": half}]
        self._change(fault, errors=rules)

    def _cloud_drops(self, fault: Fault) -> None:
        self._change(fault, errors=[{"operation": "*", "kind": "drop", "rate": fault.amount}])

    def _cloud_busy(self, fault: Fault) -> None:
        rule = {"operation": "compute.*", "kind": "429", "rate": fault.amount, "retry_after": 1}
        self._change(fault, errors=[rule])

    def _lost_creates(self, fault: Fault) -> None:
        names = {"operation": "compute.create_server", "after": True, "rate": fault.amount}
        self._change(fault, errors=[{**names, "kind": "drop"}, {**names, "kind": "500"}])

    def _error_servers(self, fault: Fault) -> None:
        half = fault.amount / 2
        self._change(fault, boots=[{"kind": "error", "rate": half}, {"kind": "no-valid-host", "rate": half}])

    def _stuck_builds(self, fault: Fault) -> None:
        self._change(fault, boots=[{"kind": "stuck", "rate": fault.amount}])

    def _swallowed_deletes(self, fault: Fault) -> None:
        half = fault.amount / 2
        self._change(fault, deletes=[{"kind": "swallowed", "rate": half}, {"kind": "error", "rate": half}])

    def _hidden_servers(self, fault: Fault) -> None:
        self._change(fault, hidden_rate=fault.amount)

    def _leaked_ports(self, fault: Fault) -> None:
        self._change(fault, port_leak_rate=fault.amount)

    def _leaked_volumes(self, fault: Fault) -> None:
        self._change(fault, volume_leak_rate=fault.amount)

    def _quota_change(self, fault: Fault) -> None:
        self._change(fault, quota={"instances": int(self._world.limits.servers * fault.amount)})

    def _server_vanishes(self, _fault: Fault) -> str:
        server = self._choice([s for s in self._world.cloud.servers() if s["metadata"].get("nodepool_node_id")])
        if server is None:
            return "there was none"
        self._load.disturbed.add(server["metadata"]["nodepool_node_id"])
        # It may be deleted since the list was asked for.
        with contextlib.suppress(ValueError):
            self._world.cloud.vanish(server["id"])
        return f"server {server['id']} of node {server['metadata']['nodepool_node_id']}"

    # -- hands in ZooKeeper

    def _victim(self) -> str | None:
        """A node that some fault shall hit."""
        node_id: str | None = self._choice(sorted(self._world.znodes.nodes()))
        if node_id is not None:
            # Its server is nobody's for a while.
            self._load.disturbed.add(node_id)
            self._watcher.orphaned += 1
        return node_id

    def _node_deleted(self, _fault: Fault) -> str:
        node_id = self._victim()
        if node_id is not None:
            self._world.znodes.vanish(node_id)
        return f"node {node_id}"

    def _node_corrupted(self, _fault: Fault) -> str:
        node_id = self._victim()
        if node_id is not None:
            # An error may come after the effect.
            self._corrupted.append(node_id)
            self._world.znodes.kazoo.set(f"{NODES}/{node_id}", b'{"state": "rea')
        return f"node {node_id}"

    def _node_emptied(self, _fault: Fault) -> str:
        node_id = self._victim()
        if node_id is not None:
            self._world.znodes.kazoo.set(f"{NODES}/{node_id}", b"")
        return f"node {node_id}"

    # -- the other side

    def _client_kill(self, fault: Fault) -> str:
        client = DoomedClient(self._world)
        client.start()
        try:
            self._pause(fault)
        finally:
            client.kill()
        # Its successor comes after a while.
        threading.Event().wait(SUCCESSOR_SECONDS)
        count = self._load.forget({client.requestor()})
        return f"{count} requests forgotten"

    def _choice(self, things: list[Any]) -> Any:
        return self._random.choice(things) if things else None
