# SPDX-License-Identifier: Apache-2.0
"""Zuul's client as the load: jobs that ask for nodes, use them and give them back, whatever happens meanwhile."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Container, Sequence
from random import Random
from typing import Any, TypeVar

from kazoo.exceptions import KazooException

from tests.chaos.providers import FLOATING, STATIC, STATIC_PROVIDER, VOLUME
from tests.chaos.schedule import KINDS
from tests.chaos.served_time import Patience, ServedTime
from tests.chaos.world import CHROOT, MIXED, TENANT, World, own_label
from tests.support.pool_znodes import REQUESTS
from tests.support.zuul_client import ZuulClient

T = TypeVar("T")

#: A request that is older is stuck. Time in which ZooKeeper does not serve does not count, up to a limit.
STUCK_SECONDS = 120.0
MOST_SECONDS = 300.0
#: One that waited longer is worth a note.
SLOW_SECONDS = 20.0
#: How long an operation is tried again while ZooKeeper is away.
PATIENCE_SECONDS = 60.0
PAUSE_SECONDS = 0.2
#: Labels of a job, by how often.
JOBS = (
    *((["small"], 6), (["medium"], 2), (["small", "small"], 2), (["medium", "small", "small"], 1)),
    *(([VOLUME], 1), ([FLOATING], 1), ([STATIC], 1), ([STATIC, STATIC], 1)),
)


class Load:
    """Jobs in threads. Only looks and judges; faults are none of its business.

    :param threads: jobs at once; as one ends, the next one begins. Without meaning when there are ``arrivals``.
    :param on_violation: called with what must not be; any thread.
    :param arrivals: a job at each of these times and no others, however many run already.
    """

    def __init__(
        self,
        world: World,
        seed: int,
        threads: int,
        on_violation: Callable[[str], None],
        arrivals: Sequence[float] = (),
    ) -> None:
        self._world = world
        self._violation = on_violation
        self._random = Random(f"load {seed}")
        self._client = ZuulClient(world.zookeeper.tls_hosts(CHROOT), world.zookeeper.certificates, session_seconds=30)
        self.served = ServedTime(lambda: self._client.connection.connected and world.zookeeper.serves())
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._threads = [
            *(threading.Thread(target=self._run_at, args=(at,), name=f"job-at-{at:g}") for at in arrivals),
            *(threading.Thread(target=self._run, name=f"job-{n}") for n in range(0 if arrivals else threads)),
        ]
        #: node id -> request id, of nodes that a job holds now.
        self.held: dict[str, str] = {}
        #: Node ids that a fault was done to on purpose: their jobs may suffer.
        self.disturbed: set[str] = set()
        #: Slots of static hosts that a job holds now, and its node.
        self._places: dict[tuple[str, int], str] = {}
        #: Ids of requests that failed, their labels, and when that was seen.
        self.failed: dict[str, tuple[list[str], float]] = {}
        #: What became of the jobs.
        self.results: Counter[str] = Counter()
        #: Seconds from the submission to the nodes, or until nobody waited any longer; and who waited.
        self.waits: list[tuple[float, str]] = []

    def connect(self) -> None:
        """Begins the client's session."""
        self._client.start()
        self.served.start()

    def start(self) -> None:
        """Begins the jobs."""
        for thread in self._threads:
            thread.start()

    def finish(self) -> None:
        """No new jobs; blocks until those that run have ended."""
        self._stopped.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()

    def close(self) -> None:
        """Ends the client's session."""
        self.finish()
        self.served.stop()
        self._client.stop()

    def one(self, label: str, seconds: float) -> str:
        """One job with one node; returns how it ended, for example ``done``."""
        return self._job([label], "tenant", 0.0, seconds, counted=False)

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._run_one()

    def _run_at(self, at: float) -> None:
        if not self._stopped.wait(max(0.0, at - self._world.now())):
            self._run_one()

    def _run_one(self) -> None:
        # Some have a label that only one launcher offers: it may be away just now.
        own: list[tuple[list[str], float]] = [([own_label(number)], 1) for number in range(len(self._world.launchers))]
        if self._world.mixes:
            # No pool has all of these, and no other launcher has both pools of the last ones.
            own += [(["small", STATIC], 1), *(([own_label(number), FLOATING], 0.5) for number, _ in enumerate(own))]
        labels, weights = [labels for labels, _ in (*JOBS, *own)], [weight for _, weight in (*JOBS, *own)]
        with self._lock:
            chosen = self._random.choices(labels, weights)[0]
            tenant = TENANT if self._random.random() < 0.3 and len(chosen) < 3 else "tenant"
            hold = self._random.uniform(0.1, 2.5)
        try:
            result = self._job(chosen, tenant, hold, STUCK_SECONDS)
        except Exception as error:
            self._violation(f"a job ended with {error!r}")
            result = "error"
        with self._lock:
            self.results[result] += 1
            self.results[f"{result} with nodes of several pools"] += len({*chosen} - {*MIXED}) < len({*chosen}) > 1

    def _job(self, labels: list[str], tenant: str, hold_seconds: float, seconds: float, *, counted: bool = True) -> str:
        begun = self._world.now()
        request = self._persist(lambda: self._client.submit(labels, tenant=tenant))
        try:
            completed = self._wait(request, seconds)
        except AssertionError as error:
            self._violation(f"stuck: {error}")
            if counted:
                self._count(request.id, labels, begun)
            self._persist(lambda: self._client.cancel(request))
            return "stuck"
        completed.nodeset = request.nodeset
        if completed.state != "fulfilled":
            with self._lock:
                self.failed[request.id] = (labels, self._world.now())
            self._persist(lambda: self._client.cancel(completed))
            return str(completed.state)
        nodeset = self._accept(completed)
        if nodeset is None:
            return "not accepted"
        if counted:
            self._count(request.id, labels, begun)
        return self._use(request.id, nodeset, hold_seconds)

    def _wait(self, request: Any, seconds: float) -> Any:
        """As the client does, but time without ZooKeeper does not count."""
        patience = Patience(self.served, seconds, seconds + MOST_SECONDS)
        while (left := patience.left()) > 0:
            with contextlib.suppress(AssertionError):
                return self._client.wait(request, max(left, PAUSE_SECONDS))
        state = self._client.cached_state(request)
        raise AssertionError(f"no event for request {request.id} within {seconds:g} s with ZooKeeper, state {state}")

    def _count(self, request_id: str, labels: list[str], begun: float) -> None:
        waited = self._world.now() - begun
        if waited > SLOW_SECONDS:
            self._world.note(f"client: request {request_id} for {labels} waited for {waited:.1f} s")
        with self._lock:
            self.waits.append((waited, f"{request_id} for {labels} at {begun:.1f} s"))

    def _accept(self, request: Any) -> Any:
        try:
            return self._client.accept(request)
        except Exception as error:
            # With ZooKeeper away in the middle of it Zuul gives up, too: it frees what it has, and asks anew.
            self._world.note(f"client: request {request.id} not accepted: {error!r}")
            nodes = set(request.nodes)
            if not isinstance(error, KazooException) and not nodes & self.disturbed and not self._zookeeper_was_away():
                self._violation(f"request {request.id} with nodes {sorted(nodes)} could not be accepted: {error!r}")
            self._persist(self._client.unlock_refused)
            self._persist(lambda: self._client.cancel(request))
            return None

    def _zookeeper_was_away(self) -> bool:
        since = self._world.now() - 30
        faults = [kind for kind, what in KINDS.items() if what.target == "zookeeper"]
        return any(
            text.startswith(f"fault {kind}") or "zookeeper" in text
            for when, text in self._world.events
            if when > since
            for kind in faults
        )

    def _use(self, request_id: str, nodeset: Any, hold_seconds: float) -> str:
        nodes = [node.id for node in nodeset.getNodes()]
        places = {
            (node.hostname, node.slot): node.id for node in nodeset.getNodes() if node.provider == STATIC_PROVIDER
        }
        with self._lock:
            for place, node_id in places.items():
                other = self._places.get(place)
                if other is not None and not {other, node_id} & self.disturbed:
                    self._violation(f"slot {place} was given to nodes {other} and {node_id} at once")
            self._places |= places
            for node_id in nodes:
                if node_id in self.held:
                    self._violation(f"node {node_id} was given to {self.held[node_id]} and to {request_id}")
                self.held[node_id] = request_id
        try:
            self._persist(lambda: self._client.use(nodeset))
            self._stopped.wait(hold_seconds)
            result = self._judge(nodes)
        finally:
            with self._lock:
                for node_id in nodes:
                    self.held.pop(node_id, None)
                for place, node_id in places.items():
                    if self._places.get(place) == node_id:
                        del self._places[place]
        self._persist(lambda: self._client.give_back(nodeset))
        return result

    def _judge(self, nodes: list[str]) -> str:
        """Were the nodes left alone while the job ran?"""
        if set(nodes) & self.disturbed:
            return "disturbed on purpose"
        for node_id in nodes:
            node = self._look(node_id)
            if node is not None and node["state"] != "in-use":
                # A server of an ensemble may answer a sync a moment before it has what the leader has committed.
                threading.Event().wait(PAUSE_SECONDS)
                node = self._look(node_id)
            if node_id in self.disturbed:
                return "disturbed on purpose"
            if node is None or node["state"] != "in-use":
                self._violation(f"node {node_id} was touched while its job ran: {node}")
                return "touched"
        return "done"

    def _look(self, node_id: str) -> dict[str, Any] | None:
        return self._persist(lambda: self._world.znodes.node_now(node_id))

    def _persist(self, operation: Callable[[], T]) -> T:
        """Does it again while ZooKeeper is away, as the parts of Zuul do in one way or the other."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                return operation()
            except KazooException as error:
                if time.monotonic() > deadline:
                    raise
                self._world.note(f"client: {error!r}, trying again")
            threading.Event().wait(PAUSE_SECONDS)

    def forget(self, requestors: Container[str] | None = None) -> int:
        """Deletes requests that nobody waits for, as a scheduler does after its restart.

        :param requestors: whose; None = everybody's but ours that run.
        :return: how many.
        """
        znodes = self._world.znodes
        count = 0
        for request_id in znodes.children(REQUESTS):
            request = znodes.request(request_id) or {}
            if requestors is None or request.get("requestor") in requestors:
                znodes.delete_request(request_id)
                count += 1
        return count
