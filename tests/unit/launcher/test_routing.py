# SPDX-License-Identifier: Apache-2.0
"""Which worker hears of which change."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from nodepool.launcher.supervisor import Router
from nodepool.model.node import Node
from nodepool.model.request import NodeRequest


class Records(dict[str, Any]):
    """A cache that the test fills."""

    def __init__(self) -> None:
        super().__init__()
        self.locked: set[str] = set()
        self.empty: set[str] = set()
        self.listeners: list[Callable[[str], None]] = []

    def add_listener(self, listener: Callable[[str], None]) -> None:
        self.listeners.append(listener)

    def ids(self) -> list[str]:
        return list(self)

    def is_locked(self, record_id: str) -> bool:
        return record_id in self.locked

    def is_empty(self, record_id: str) -> bool:
        return record_id in self.empty

    def put(self, record_id: str, record: Any = None) -> None:
        """Change a record, or remove it, and tell."""
        if record is None:
            self.pop(record_id, None)
        else:
            self[record_id] = record
        self.tell(record_id)

    def tell(self, record_id: str) -> None:
        for listener in self.listeners:
            listener(record_id)


class Pool:
    def __init__(self, provider: str, name: str = "main", labels: tuple[str, ...] = ("small",)) -> None:
        self.provider_name, self.pool_name = provider, name
        self.launcher_id = f"{provider}-{name}"
        self.labels = frozenset(labels)
        self.handlers: list[object] = []
        self.heard: list[Any] = []
        #: How often a node was a reason to make a pass.
        self.woken = 0
        #: Nodes whose launch is about to end.
        self.launching: set[str] = set()

    def node_changed(self, node_id: str, *, wake: bool = True) -> None:
        self.heard.append(node_id)
        self.woken += wake

    def node_gone(self, node_id: str) -> None:
        self.node_changed(node_id)

    def launches(self, node: Node) -> bool:
        return node.id in self.launching

    def request_changed(self, request_id: str, *, wake: bool = True) -> None:
        self.heard.append((request_id, wake))

    def wake(self) -> None:
        self.heard.append("wake")


class Launcher:
    """What `Router` is given."""

    def __init__(self, *pools: Pool) -> None:
        self.nodes, self.requests, self.pool_records, self.images = Records(), Records(), Records(), Records()
        #: Told when maintenance records change.
        self.operators: list[Callable[[], None]] = []
        self.cache = SimpleNamespace(
            nodes=self.nodes,
            requests=self.requests,
            pools=self.pool_records,
            images=self.images,
            maintenance=SimpleNamespace(add_listener=self.operators.append),
        )
        self.maintenance_looks = 0
        self.all = list(pools)
        self.tenants_are_limited = False
        self.deleted: list[Any] = []
        self.swept = self.forgotten = self.reset = 0
        self.pools = SimpleNamespace(changed=self._forget)
        self.changed: list[str] = []
        self.deletion = SimpleNamespace(
            node_changed=self.deleted.append,
            request_gone=lambda request_id, node_ids: self.deleted.append((request_id, sorted(node_ids))),
        )
        self.cleanup = SimpleNamespace(sweep_soon=self._sweep, launcher_went=self._sweep, reset_soon=self._reset)
        made: Any = Router
        self.router: Router = made(
            self.cache,
            self.pools,
            self,
            SimpleNamespace(current=self.deletion),
            SimpleNamespace(current=self.cleanup),
            SimpleNamespace(current=SimpleNamespace(wake=self._look_at_maintenance)),
            has_tenant_limits=lambda: self.tenants_are_limited,
            counted=self.changed.append,
        )

    def _look_at_maintenance(self) -> None:
        self.maintenance_looks += 1

    def _sweep(self) -> None:
        self.swept += 1

    def _reset(self) -> None:
        self.reset += 1

    def current(self) -> list[Pool]:
        return self.all

    def get(self, *key: str | None) -> Pool | None:
        return next((pool for pool in self.all if (pool.provider_name, pool.pool_name) == key), None)

    def _forget(self) -> None:
        self.forgotten += 1


def node(state: str = "ready", provider: str | None = "one", pool: str | None = "main", **fields: Any) -> Node:
    made = Node("small")
    made.state, made.provider, made.pool = state, provider, pool
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def request(state: str = "requested", *labels: str, declined_by: tuple[str, ...] = ()) -> NodeRequest:
    made = NodeRequest()
    made.state, made.node_types, made.declined_by = state, list(labels or ["small"]), list(declined_by)
    return made


@pytest.fixture
def launcher() -> Launcher:
    return Launcher(Pool("one"), Pool("two", labels=("big",)), Pool("three"))


def test_nodes_that_make_a_pass(launcher: Launcher) -> None:
    """The end of a launch, a node that is free, and one that is gone: then there may be room, or something to do."""
    pool = launcher.all[0]
    for state in ("building", "testing", "in-use", "used", "hold", "deleting"):
        launcher.nodes.put("1", node(state))
    assert (len(pool.heard), pool.woken) == (6, 0)
    for state in ("ready", "failed", "aborted"):
        launcher.nodes.put("1", node(state))
    launcher.nodes.put("1")
    assert (len(pool.heard), pool.woken) == (10, 4)


@pytest.mark.parametrize(("state", "woken"), [("init", 0), ("building", 0), ("ready", 1), ("failed", 1)])
def test_node_of_a_request_that_makes_a_pass(launcher: Launcher, state: str, woken: int) -> None:
    """Only the end of its launch, and not who has the lock of its node."""
    pool, mine = launcher.all[0], {"allocated_to": "200-0000000001"}
    launcher.nodes.put("1", node("init", version=0, **mine))
    launcher.nodes.put("1", node(state, version=1, **mine))
    launcher.nodes.tell("1")
    assert (pool.heard, pool.woken) == (["1"] * 3, woken)
    # As soon as it is anybody's, each change counts.
    launcher.nodes.put("1", node("ready", version=2))
    launcher.nodes.tell("1")
    assert pool.woken == woken + 2


def test_launch_that_is_about_to_end(launcher: Launcher) -> None:
    """It asks for a pass itself: one before that would find that it runs."""
    pool, mine = launcher.all[0], {"allocated_to": "200-0000000001"}
    pool.launching.add("1")
    for version, state in enumerate(["building", "ready"]):
        launcher.nodes.put("1", node(state, id="1", version=version, **mine))
    assert (pool.heard, pool.woken) == (["1"] * 2, 0)
    launcher.nodes.put("1")
    assert pool.woken == 1


def test_node_of_a_pool(launcher: Launcher) -> None:
    """Only its own pool hears of it, also when it goes."""
    launcher.nodes.put("1", node())
    launcher.nodes.put("1")
    assert [pool.heard for pool in launcher.all] == [["1", "1"], [], []]
    assert launcher.deleted == []


@pytest.mark.parametrize(("provider", "pool"), [("elsewhere", "main"), (None, None), ("one", "gone")])
def test_node_of_somebody_else(launcher: Launcher, provider: str | None, pool: str | None) -> None:
    launcher.nodes.put("1", node(provider=provider, pool=pool))
    launcher.nodes.put("1")
    assert [pool.heard for pool in launcher.all] == [[], [], []]


def test_node_that_must_go(launcher: Launcher) -> None:
    """X-1: at once when it is free; not while somebody has it locked."""
    launcher.nodes.locked.add("1")
    launcher.nodes.put("1", node("used"))
    assert launcher.deleted == []
    launcher.nodes.locked.clear()
    launcher.nodes.tell("1")
    assert launcher.deleted == ["1"]


def test_launcher_that_went_in_the_middle_of_a_launch(launcher: Launcher) -> None:
    """C-4: the lock of its node is gone, so its request is anybody's, at once."""
    launcher.nodes.locked.update(("1", "2"))
    launcher.nodes.put("1", node("building"))
    launcher.nodes.put("2", node("used"))
    assert launcher.reset == 0
    launcher.nodes.locked.clear()
    launcher.nodes.tell("2")
    assert launcher.reset == 0
    launcher.nodes.tell("1")
    assert launcher.reset == 1
    assert launcher.deleted == ["2", "1"]


def test_node_without_data(launcher: Launcher) -> None:
    """C-8: nobody's, so nobody else would hear of it."""
    launcher.nodes.empty.add("1")
    launcher.nodes.put("1")
    assert launcher.deleted == ["1"]


def test_room_in_the_provider(launcher: Launcher) -> None:
    """Q-10: a node that goes may make room for other pools of its provider that serve."""
    second, idle = Pool("one", "second"), Pool("one", "idle")
    second.handlers.append(object())
    launcher.all += [second, idle]
    launcher.nodes.put("1", node())
    launcher.nodes.put("1")
    assert (second.heard, idle.heard, launcher.all[2].heard) == (["wake"], [], [])


def test_room_for_a_tenant(launcher: Launcher) -> None:
    """A-8: with tenant limits it may make room everywhere."""
    launcher.tenants_are_limited = True
    launcher.nodes.put("1", node())
    launcher.nodes.put("1")
    assert launcher.all[2].heard == ["wake"]


def test_new_request(launcher: Launcher) -> None:
    """Pools that have the labels are woken; the others only note it."""
    launcher.requests.put("200-1", request())
    assert [pool.heard for pool in launcher.all] == [[("200-1", True)], [("200-1", False)], [("200-1", True)]]


def test_request_that_all_must_judge(launcher: Launcher) -> None:
    """A-6: when those with the labels have declined, or nobody has them, all are woken to decline."""
    launcher.requests.put("200-1", request("requested", "small", declined_by=("one-main", "three-main")))
    launcher.requests.put("200-2", request("requested", "unknown"))
    for pool in launcher.all:
        assert pool.heard == [("200-1", True), ("200-2", True)]


@pytest.mark.parametrize("state", ["pending", "fulfilled", "failed"])
def test_request_that_is_taken(launcher: Launcher, state: str) -> None:
    """It leaves the queues when somebody looks; nobody is woken for that."""
    launcher.requests.put("200-1", request(state))
    assert [pool.heard for pool in launcher.all] == [[("200-1", False)]] * 3


def test_request_goes(launcher: Launcher) -> None:
    """C-9: exactly its free nodes are looked at."""
    launcher.requests.put("200-1", request("fulfilled"))
    launcher.requests.put("200-2", request("fulfilled"))
    for node_id, owner in (("1", "200-1"), ("2", "200-1"), ("3", "200-2"), ("4", None)):
        launcher.nodes.put(node_id, node(allocated_to=owner))
    launcher.nodes.put("5", node(allocated_to="200-1"))
    launcher.nodes.put("5", node(allocated_to=None))
    launcher.nodes.locked.add("2")
    launcher.requests.put("200-1")
    assert launcher.deleted == [("200-1", ["1"])]
    launcher.nodes.put("3")
    launcher.requests.put("200-2")
    assert launcher.deleted == [("200-1", ["1"]), ("200-2", [])]
    assert launcher.router._nodes_of == {"200-1": {"1", "2"}}


def test_request_is_finished(launcher: Launcher) -> None:
    """C-10: an `init` node that it did not need is looked at; ready ones are its own."""
    launcher.requests.put("200-1", request("pending"))
    launcher.nodes.put("1", node("init", allocated_to="200-1"))
    launcher.nodes.put("2", node(allocated_to="200-1"))
    assert launcher.deleted == []
    launcher.requests.put("200-1", request("fulfilled"))
    assert launcher.deleted == ["1"]


def test_everything_may_have_changed(launcher: Launcher) -> None:
    """G-3: after a lost connection everybody looks at everything, and what was interrupted is swept soon."""
    launcher.nodes.tell("")
    launcher.requests.tell("")
    assert launcher.all[0].heard == ["", ("", True)]
    assert launcher.deleted == [""]
    assert launcher.swept == 1


def test_registry(launcher: Launcher) -> None:
    """A-4 to A-6: who is there, and paused, decides; a pool that goes may leave lost requests (C-4)."""
    launcher.pool_records.put("p1", object())
    assert (launcher.forgotten, launcher.swept) == (1, 0)
    launcher.pool_records.put("p1")
    assert (launcher.forgotten, launcher.swept) == (2, 1)
    assert launcher.all[0].heard == ["wake", "wake"]


def test_counters(launcher: Launcher) -> None:
    """Min-ready and statistics hear of everything."""
    launcher.nodes.put("1", node())
    launcher.requests.put("200-1", request())
    launcher.pool_records.put("p1", object())
    assert launcher.changed == ["", "200-1", ""]


def test_image_that_changed() -> None:
    """Labels may be ready whose nodes are to be kept."""
    launcher = Launcher(Pool("a"))
    launcher.images.tell("debian")
    assert launcher.changed == [""]
    assert launcher.all[0].heard == []


def test_maintenance_record_that_changed() -> None:
    """MT-2, MT-7: every pool looks at once, and so does who keeps nodes ready."""
    launcher = Launcher(Pool("a"), Pool("b"))
    for tell in launcher.operators:
        tell()
    assert [pool.heard for pool in launcher.all] == [["wake"], ["wake"]]
    assert (launcher.changed, launcher.maintenance_looks) == ([""], 1)
