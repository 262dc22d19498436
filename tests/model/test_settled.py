# SPDX-License-Identifier: Apache-2.0
"""What rests on everything that ZooKeeper announced having been read, and on a lock being of the present session.

Each of these needs one order of steps among thousands, so it is played here as it is written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from nodepool.model import states
from nodepool.model.node import Node
from nodepool.zk import paths
from nodepool.zk.transactions import Election
from tests.model.launcher import Launcher
from tests.model.setup import Setup
from tests.model.world import World


def drive(world: World, until: Callable[[], bool], *lanes: str) -> None:
    """Let only these lanes go on, the first of them that can, until something is true.

    :param lanes: beginnings of their names.
    """
    while not until():
        turns = [(lane, act) for start in lanes for lane, act in world.turns() if lane.startswith(start)]
        assert turns, f"none of {lanes} can go on"
        turns[0][1]()


def store_node(world: World) -> Node:
    """The client stores a node; nobody has heard of it yet."""
    node = Node("small")
    node.state, node.provider, node.pool = states.READY, "one", "main"
    job = world.spawn("zuul.store", world.zuul, lambda: world.zuul.zk.storeNode(node))
    drive(world, lambda: job.done, "zuul")
    return node


def ask_settled(world: World, launcher: Launcher, node: Node) -> list[tuple[bool, bool]]:
    """Was it settled, and was the node known then? One answer, later."""
    answers: list[tuple[bool, bool]] = []
    nodes = launcher.nodepool.cache.nodes

    def ask() -> None:
        settled = nodes.wait_settled(5.0)
        answers.append((settled, nodes.get(node.key) is not None))

    world.spawn("nl0.ask", launcher, ask)
    drive(world, lambda: bool(answers), "nl0.ask", "nl0.send", "nl0.read", "nl0.notice", "nl0.connect")
    return answers


@pytest.mark.parametrize("cut", [False, True])
def test_what_was_announced_is_known_when_a_cache_is_settled(cut: bool) -> None:
    """One that is read anew is not settled. It was: the read was forgotten with the connection, and a launcher filled a
    place that was taken (Q-2).
    """
    with World(Setup(launchers=1)) as world:
        world.run_seconds(1)
        [launcher] = world.launchers
        assert isinstance(launcher, Launcher)
        node = store_node(world)
        drive(world, lambda: launcher.nodepool.cache.nodes.pending_reads > 0, "nl0.read")
        if cut:
            launcher.kazoo.cut()
            drive(world, lambda: launcher.client.suspended, "nl0.notice")
            drive(world, lambda: launcher.client.connected, "nl0.connect")
        assert ask_settled(world, launcher, node) == [(True, True)]


def test_min_ready_is_counted_when_the_requests_of_the_last_one_are_known() -> None:
    """M-6: the lock may be ours before the answer to the read of what its last holder has made."""
    election = paths.election("min-ready")
    with World(Setup(launchers=2, min_ready=1)) as world:
        others = [lane for name in ("nl0", "nl1") for lane in (f"{name}.start", f"{name}.send", f"{name}.read")]
        started = [f"{name}.connect" for name in ("nl0", "nl1")]
        drive(world, lambda: all(launcher.serving for launcher in world.launchers), *others, *started)
        contenders = world.server.children
        drive(world, lambda: len(contenders(election)) == 1, "nl0")
        drive(world, lambda: len(contenders(election)) == 2, "nl1.MinReady", "nl1.ask", "nl1.send", "nl1.read")
        [first, _] = contenders(election)
        drive(world, lambda: first not in contenders(election), "nl0.MinReady", "nl0.send", "nl0.read")
        drive(world, lambda: not contenders(election), "nl1.MinReady", "nl1.ask", "nl1.send", "nl1.read")
        assert len(world.server.children(paths.REQUESTS)) == 1


def test_an_election_goes_on_after_a_session_that_is_lost_anywhere_in_it() -> None:
    """A lock that was taken in the next session while we waited would be nobody's, and never free again."""
    for point in range(16):
        with World(Setup(launchers=1)) as world:
            world.run_seconds(1)
            [launcher] = world.launchers
            election = Election(launcher.client, "stats", "nl0")
            leads: list[Any] = []
            ask = lambda election=election, leads=leads: leads.append(election.is_leader())  # noqa: E731
            world.spawn("nl0.elect", launcher, ask)
            world.run(point)
            world.moves.do_zombie(0)
            for _ in range(2):
                world.run_seconds(1)
                world.spawn("nl0.elect", launcher, ask)
            world.run_seconds(1)
            assert leads[-1], f"{leads} after {point} steps"
