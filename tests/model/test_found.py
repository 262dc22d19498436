# SPDX-License-Identifier: Apache-2.0
"""Cases that the simulated worlds found. Each was a fault of a launcher or a builder when it was found."""

from __future__ import annotations

from typing import Any

from nodepool.model import states
from nodepool.model.node import Node
from nodepool.zk import paths
from tests.model.image_world import ImageWorld
from tests.model.layout import LAB
from tests.model.setup import Move, Setup
from tests.model.world import World, replay
from tests.support.tables import rows

WORLDS = {"nodes": World, "images": ImageWorld}


@rows(__file__, "found")
def test_moves(what: str, world: str, setup: dict[str, Any], moves: list[Any]) -> None:
    """R-7: among others; ``tables.yaml`` says what was wrong."""
    replay(Setup(**setup), *(Move(*move) for move in moves), kind=WORLDS[world])


def test_a_session_lost_anywhere_in_a_pass_for_min_ready() -> None:
    """The same at each point of the pass, so that it does not rest on one order."""
    for point in range(40):
        with World(Setup(launchers=1, max_servers=1, min_ready=1)) as world:
            while not any(job.name == "nl0.MinReadyWorker" for job in world.jobs):
                world.run(1)
            world.run(point)
            world.moves.do_zombie(0)
            world.settle()


def test_a_ready_node_whose_request_is_served_without_it_is_free_again() -> None:
    """A launcher that was lost had made it; the request was reset before the others knew that its lock was gone."""
    with World(Setup(launchers=1, max_servers=1)) as world:
        world.run_seconds(1)
        world.moves.do_freeze(0)
        world.zuul.submit(["small"])
        world.run_seconds(1)
        node = Node("small")
        node.state, node.provider, node.pool = states.READY, "one", "main"
        node.external_id, node.allocated_to = "made-by-another", next(iter(world.zuul.waiting))
        world.zuul.do("store", lambda: world.zuul.zk.storeNode(node))
        world.run_seconds(1)
        world.settle()


def test_a_session_lost_anywhere_in_the_registration_of_hosts() -> None:
    """Who stood still with the mutex went on when another launcher had registered the same slots."""
    mutex = paths.static_mutex(LAB)
    for point in range(16):
        with World(Setup(launchers=2, pools=0, hosts=1)) as world:
            while not world.server.children(mutex):
                world.run(1)
            world.run(point)
            world.moves.do_zombie(0)
            world.settle()


def test_a_host_that_does_not_answer_while_the_connection_breaks() -> None:
    """There was a traceback for it."""
    for point in range(30):
        with World(Setup(launchers=1, pools=0, hosts=1)) as world:
            world.run_seconds(1)
            world.hosts.down.add("host0")
            world.zuul.submit(["metal"])
            world.run(point)
            world.moves.do_cut(0)
            world.settle()
