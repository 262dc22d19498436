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

MINE = {"allocated_to": "200-0000000001"}


class Records(dict[str, Any]):
    """A cache that the test fills."""

    def __init__(self) -> None:
        self.locked: set[str] = set()
        self.empty: set[str] = set()
        self.is_locked, self.is_empty = self.locked.__contains__, self.empty.__contains__

    def add_listener(self, listener: Callable[..., None]) -> None:
        self.tell = listener

    def ids(self) -> list[str]:
        return list(self)

    def put(self, record_id: str, record: Any = None) -> None:
        """Change a record, or remove it, and tell."""
        self.pop(record_id, None)
        if record is not None:
            self[record_id] = record
        self.tell(record_id)


class Pool:
    def __init__(self, provider: str, name: str = "main", label: str = "small") -> None:
        self.provider_name, self.pool_name, self.launcher_id = provider, name, f"{provider}-{name}"
        self.labels = frozenset({label})
        self.handlers: list[object] = []
        self.heard: list[Any] = []
        #: How often a node was a reason to make a pass.
        self.woken = 0
        #: Nodes whose launch is about to end.
        self.launching: set[str] = set()

    def node_changed(self, node_id: str, *, wake: bool = True) -> None:
        self.heard.append(node_id)
        self.woken += wake

    node_gone = node_changed

    def launches(self, node: Node) -> bool:
        return node.id in self.launching

    def request_changed(self, request_id: str, *, wake: bool = True) -> None:
        self.heard.append((request_id, wake))

    def wake(self) -> None:
        self.heard.append("wake")


class Launcher:
    """What `Router` is given: pools ``one`` and ``three`` with the label ``small``, and ``two`` with ``big``.

    ``told`` has what other workers hear: ``sweep``, ``went``, ``reset``, ``registry``, ``maintenance``, ``count``.
    """

    def __init__(self) -> None:
        self.nodes, self.requests, self.pool_records, self.images, self.operators = (Records() for _ in range(5))
        cache = SimpleNamespace(
            nodes=self.nodes,
            requests=self.requests,
            pools=self.pool_records,
            images=self.images,
            maintenance=self.operators,
        )
        self.all = [Pool("one"), Pool("two", label="big"), Pool("three")]
        self.limited = False
        self.deleted: list[Any] = []
        self.told: list[str] = []

        def note(what: str) -> Callable[[], None]:
            return lambda: self.told.append(what)

        deletion = SimpleNamespace(
            node_changed=self.deleted.append,
            request_gone=lambda request_id, node_ids: self.deleted.append((request_id, sorted(node_ids))),
        )
        cleanup = SimpleNamespace(sweep_soon=note("sweep"), launcher_went=note("went"), reset_soon=note("reset"))
        make: Any = Router
        make(
            cache,
            SimpleNamespace(changed=note("registry")),
            SimpleNamespace(current=lambda: self.all, get=self._get),
            *(SimpleNamespace(current=each) for each in (deletion, cleanup, SimpleNamespace(wake=note("maintenance")))),
            has_tenant_limits=lambda: self.limited,
            counted=lambda changed_id: self.told.append(f"count {changed_id}"),
        )

    def _get(self, *key: str | None) -> Pool | None:
        return next((pool for pool in self.all if (pool.provider_name, pool.pool_name) == key), None)

    def heard(self) -> list[list[Any]]:
        return [pool.heard for pool in self.all]

    def others(self) -> list[str]:
        return [what for what in self.told if not what.startswith("count")]


def node(state: str = "ready", provider: str | None = "one", pool: str | None = "main", **fields: Any) -> Node:
    made = Node("small")
    made.state, made.provider, made.pool = state, provider, pool
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def request(state: str = "requested", label: str = "small", declined_by: tuple[str, ...] = ()) -> NodeRequest:
    made = NodeRequest()
    made.state, made.node_types, made.declined_by = state, [label], list(declined_by)
    return made


@pytest.fixture
def launcher() -> Launcher:
    return Launcher()


def test_nodes_that_make_a_pass(launcher: Launcher) -> None:
    """The end of a launch, a node that is free, and one that is not there any more: there may be room, or work."""
    pool = launcher.all[0]
    for state in ("building", "testing", "in-use", "used", "hold", "deleting"):
        launcher.nodes.put("1", node(state))
    assert (len(pool.heard), pool.woken) == (6, 0)
    for state in ("ready", "failed", "aborted"):
        launcher.nodes.put("1", node(state))
    launcher.nodes.put("1")
    assert (len(pool.heard), pool.woken, launcher.heard()[1:]) == (10, 4, [[], []])


@pytest.mark.parametrize(("state", "woken"), [("init", 0), ("building", 0), ("ready", 1), ("failed", 1)])
def test_node_of_a_request(launcher: Launcher, state: str, woken: int) -> None:
    """Only the end of its launch makes a pass, not who has the lock; some launches ask for it themselves."""
    pool = launcher.all[0]
    pool.launching.add("2")
    for node_id in ("1", "2"):
        launcher.nodes.put(node_id, node("init", id=node_id, version=0, **MINE))
        launcher.nodes.put(node_id, node(state, id=node_id, version=1, **MINE))
        launcher.nodes.tell(node_id)
    assert (len(pool.heard), pool.woken) == (6, woken)
    # As soon as it is free, each change counts.
    launcher.nodes.put("1", node("ready", version=2))
    launcher.nodes.tell("1")
    launcher.nodes.put("2")
    assert pool.woken == woken + 3


@pytest.mark.parametrize(("provider", "pool"), [("elsewhere", "main"), (None, None), ("one", "gone")])
def test_node_of_another_launcher(launcher: Launcher, provider: str | None, pool: str | None) -> None:
    launcher.nodes.put("1", node(provider=provider, pool=pool))
    launcher.nodes.put("1")
    assert (launcher.heard(), launcher.deleted) == ([[], [], []], [])


def test_node_that_is_released(launcher: Launcher) -> None:
    """X-1: one that must go, goes at once. C-4: the lock of a launch is not held: its request is anybody's.

    C-8: a node without data is of no pool, so no other would hear of it.
    """
    launcher.nodes.locked.update(("1", "2"))
    launcher.nodes.put("1", node("building"))
    launcher.nodes.put("2", node("used"))
    assert (launcher.deleted, launcher.others()) == ([], [])
    launcher.nodes.locked.clear()
    launcher.nodes.tell("2")
    assert (launcher.deleted, launcher.others()) == (["2"], [])
    launcher.nodes.tell("1")
    assert (launcher.deleted, launcher.others()) == (["2", "1"], ["reset"])
    launcher.nodes.empty.add("3")
    launcher.nodes.put("3")
    assert launcher.deleted == ["2", "1", "3"]


@pytest.mark.parametrize("limited", [False, True])
def test_room(launcher: Launcher, limited: bool) -> None:
    """Q-10: a node that goes may make room for other pools of its provider that serve; A-8: for a tenant everywhere."""
    second, idle = Pool("one", "second"), Pool("one", "idle")
    second.handlers.append(object())
    launcher.all += [second, idle]
    launcher.limited = limited
    launcher.nodes.put("1", node())
    launcher.nodes.put("1")
    assert (second.heard, launcher.all[2].heard) == (["wake"], ["wake"] if limited else [])
    assert limited or idle.heard == []


@pytest.mark.parametrize(
    ("changed", "wakes"),
    [
        (request(), [True, False, True]),
        (request(declined_by=("one-main", "three-main")), [True, True, True]),
        (request(label="unknown"), [True, True, True]),
        (request("pending"), [False, False, False]),
        (request("fulfilled"), [False, False, False]),
        (request("failed"), [False, False, False]),
    ],
)
def test_request(launcher: Launcher, changed: NodeRequest, wakes: list[bool]) -> None:
    """A-6: pools with the labels are woken; all, when those have declined, or there are none. Others only note it."""
    launcher.requests.put("200-1", changed)
    assert launcher.heard() == [[("200-1", wake)] for wake in wakes]


def test_request_that_ends(launcher: Launcher) -> None:
    """C-9: exactly its free nodes are looked at when it goes. C-10: its `init` nodes when it is finished."""
    launcher.requests.put("200-1", request("fulfilled"))
    launcher.requests.put("200-2", request("pending"))
    for node_id, owner in (("1", "200-1"), ("2", "200-1"), ("3", "200-2"), ("4", None), ("5", "200-1")):
        launcher.nodes.put(node_id, node(allocated_to=owner))
    launcher.nodes.put("5", node(allocated_to=None))
    launcher.nodes.put("6", node("init", allocated_to="200-2"))
    launcher.nodes.locked.add("2")
    launcher.requests.put("200-1")
    assert launcher.deleted == [("200-1", ["1"])]
    launcher.requests.put("200-2", request("fulfilled"))
    assert launcher.deleted[1:] == ["6"]
    launcher.nodes.put("3")
    launcher.nodes.put("6")
    launcher.requests.put("200-2")
    assert launcher.deleted[2:] == [("200-2", [])]


def test_what_others_hear(launcher: Launcher) -> None:
    """Min-ready and statistics hear of everything. A-4 to A-6, C-4: a pool that goes may leave lost requests.

    MT-2, MT-7: of a maintenance record all pools hear at once.
    """
    changes: list[tuple[Callable[[], Any], str, list[str], list[Any]]] = [
        (lambda: launcher.nodes.put("1", node("init", "elsewhere")), "", [], []),
        (lambda: launcher.requests.put("200-1", request("failed")), "200-1", [], [("200-1", False)]),
        (lambda: launcher.pool_records.put("p1", object()), "", ["registry"], ["wake"]),
        (lambda: launcher.pool_records.put("p1"), "", ["registry", "went"], ["wake"]),
        (lambda: launcher.images.tell("debian"), "", [], []),
        (lambda: launcher.operators.tell(), "", ["maintenance"], ["wake"]),
    ]
    for tell, counted, others, pools in changes:
        tell()
        assert (sorted(launcher.told), launcher.heard()) == (sorted([f"count {counted}", *others]), [pools] * 3)
        launcher.told.clear()
        for pool in launcher.all:
            pool.heard.clear()


def test_everything_may_have_changed(launcher: Launcher) -> None:
    """G-3: after a lost connection all is looked at, and what was interrupted is swept soon."""
    launcher.nodes.tell("")
    launcher.requests.tell("")
    assert launcher.all[0].heard == ["", ("", True)]
    assert (launcher.deleted, launcher.others()) == ([""], ["sweep"])
