# SPDX-License-Identifier: Apache-2.0
"""Cases that the simulated world found. Each was a fault of a launcher when it was found."""

from __future__ import annotations

from nodepool.model import states
from nodepool.model.node import Node
from nodepool.zk import paths
from tests.model.layout import LAB
from tests.model.setup import Move, Setup
from tests.model.world import World, replay


def test_two_launchers_each_hold_one_node_of_two_that_both_requests_need() -> None:
    """Both waited for ever. Now the request that comes later is given back (`nodepool.plan.launch`)."""
    replay(
        Setup(launchers=2, max_servers=2, min_ready=2, order=770012735, sends_after_death=False),
        Move(20, "submit", 7),
        Move(0, "submit", 11),
        Move(40, "submit", 45),
    )
    replay(
        Setup(launchers=2, max_servers=2, min_ready=1, order=567715822, sends_after_death=False),
        Move(150, "serve_and_cut", 12),
        Move(80, "stall", 2),
        Move(2, "submit", 7),
        Move(2, "submit", 23),
        Move(0, "submit", 21),
        Move(40, "clock", 35),
    )


def test_what_one_request_lets_go_of_for_the_first_is_not_kept_by_a_third() -> None:
    """Two later requests handed a node to each other, and the first, for which they let go of it, never got it."""
    replay(
        Setup(launchers=3, max_servers=2, min_ready=1),
        Move(150, "crash", 39),
        Move(1, "submit", 6),
        Move(80, "submit", 49),
        Move(0, "cloud_down", 26),
        Move(1, "stall", 38),
        Move(40, "clock", 49),
        Move(150, "freeze", 15),
        Move(2, "submit", 15),
        Move(40, "clock", 32),
        Move(20, "quota_error", 8),
        Move(10, "submit", 3),
    )


def test_a_pool_whose_session_is_lost_while_it_registers_is_there_once() -> None:
    """The entry was made in the new session, taken for one of the old, and made once more: nobody removed the first."""
    replay(
        Setup(launchers=2, max_servers=2, order=160602510),
        Move(80, "stall", 14),
        Move(20, "zombie", 0),
    )
    replay(
        Setup(launchers=2, max_servers=3, min_ready=2, order=1070499737),
        Move(150, "release", 41),
        Move(40, "freeze", 42),
        Move(150, "stall", 5),
        Move(150, "release", 10),
    )


def test_a_min_ready_request_made_while_the_session_is_lost_has_an_owner() -> None:
    """It was made in the new session and forgotten as one of the old: its node was nobody's, and missing."""
    replay(
        Setup(launchers=2, max_servers=2, min_ready=1, order=11661308),
        Move(80, "submit", 38),
        Move(5, "stall", 42),
        Move(2, "zombie", 23),
        Move(0, "stall", 12),
        Move(40, "submit", 5),
        Move(0, "take", 42),
        Move(150, "freeze", 27),
        Move(150, "cut", 44),
        Move(1, "release", 26),
        Move(150, "clock", 46),
        Move(1, "take", 42),
        Move(40, "submit", 7),
        Move(10, "kill_zuul", 23),
        Move(20, "stall", 48),
        Move(150, "cut", 24),
        Move(40, "clock", 1),
    )


def test_a_min_ready_request_whose_creation_gave_no_answer_has_an_owner() -> None:
    """It was there all the same, and kept its node for as long as the session lived."""
    replay(
        Setup(launchers=2, max_servers=2, min_ready=2, order=832657797, sends_after_death=False),
        Move(20, "zombie", 9),
        Move(1, "cancel", 15),
        Move(20, "stall", 34),
        Move(150, "serve_and_cut", 20),
        Move(0, "submit", 17),
    )


def test_nodes_locked_in_the_middle_of_a_pass_that_lost_its_session_are_released() -> None:
    """The pool forgot its requests, and nobody gave back what it had locked in the new session: ready for ever."""
    replay(
        Setup(launchers=2, max_servers=1, min_ready=2, order=21473634),
        Move(2, "cloud_down", 43),
        Move(80, "submit", 7),
        Move(150, "clock", 8),
        Move(40, "take", 21),
        Move(1, "zombie", 18),
        Move(10, "quota_error", 49),
        Move(150, "cancel", 41),
        Move(150, "long_clock", 14),
        Move(0, "submit", 15),
        Move(5, "lost_create", 34),
        Move(40, "cut", 21),
        Move(150, "take", 13),
        Move(1, "submit", 35),
        Move(2, "release", 33),
        Move(2, "release", 20),
        Move(150, "submit", 40),
        Move(5, "stall", 7),
        Move(40, "zombie", 38),
    )


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


def test_nodes_written_for_a_request_whose_lock_was_lost_meanwhile() -> None:
    """A driver took so long to answer that another launcher served the request; their room was taken for ever."""
    replay(
        Setup(launchers=2, max_servers=3, pools=2, cloud_limit=3, min_ready=2, order=2000),
        Move(40, "submit", 28),
        Move(150, "zombie", 21),
        Move(1, "submit", 49),
        Move(1, "submit", 31),
        Move(10, "zombie", 4),
        Move(0, "zombie", 40),
    )


def test_a_limit_of_a_tenant_holds_where_ready_nodes_are_reused() -> None:
    """One launcher made a node for the tenant while another gave it a ready one; only the first looked twice."""
    replay(
        Setup(launchers=2, max_servers=3, min_ready=2, tenant_limit=2, order=630706511),
        Move(0, "submit", 5),
        Move(5, "submit", 11),
        Move(2, "submit", 47),
    )


def test_a_slot_whose_node_was_replaced_while_it_was_looked_for_is_not_empty() -> None:
    """The old node was listed, and gone when it was read; the new one was not listed: a second one was made."""
    replay(
        Setup(launchers=2, max_servers=3, order=999339855, pools=0, hosts=3),
        Move(20, "submit", 35),
        Move(150, "submit", 1),
        Move(0, "clock", 41),
        Move(1, "stall", 47),
        Move(2, "release", 12),
        Move(5, "submit", 16),
        Move(5, "take", 32),
        Move(5, "stall", 20),
        Move(10, "stall", 26),
        Move(2, "submit", 47),
        Move(20, "release", 42),
        Move(150, "release", 32),
        Move(2, "stall", 9),
        Move(150, "stall", 1),
        Move(80, "submit", 38),
    )


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


def test_a_pool_that_stood_still_while_its_launcher_began_is_waited_for() -> None:
    """The whole process had stood still for five seconds: a request that only its other pool could serve failed."""
    replay(
        Setup(launchers=2, max_servers=2, min_ready=1, order=930939933, pools=2, cloud_limit=3),
        Move(5, "submit", 14),
        Move(2, "release", 49),
        Move(1, "release", 41),
        Move(150, "submit", 34),
        Move(40, "take", 3),
        Move(1, "clock", 35),
        Move(40, "clock", 47),
        Move(1, "take", 43),
    )
    replay(
        Setup(launchers=2, max_servers=1, min_ready=1, order=36744253, pools=2, hosts=1),
        Move(10, "release", 22),
        Move(20, "take", 17),
        Move(80, "stall", 4),
        Move(40, "take", 35),
        Move(20, "reload_back", 6),
        Move(2, "clock", 4),
        Move(2, "reload_back", 34),
        Move(5, "clock", 47),
        Move(20, "clock", 32),
        Move(20, "clock", 41),
        Move(1, "take", 24),
        Move(5, "submit", 15),
    )


def test_a_deletion_that_is_about_to_begin_when_its_provider_is_replaced() -> None:
    """There was a traceback for it."""
    replay(
        Setup(launchers=2, max_servers=1, order=120475125, pools=2, cloud_limit=3),
        Move(20, "clock", 41),
        Move(20, "reload", 19),
        Move(80, "clock", 34),
        Move(150, "take", 1),
        Move(2, "stall", 43),
        Move(5, "take", 7),
        Move(2, "reload", 46),
        Move(10, "submit", 13),
        Move(10, "submit", 40),
        Move(150, "submit", 4),
        Move(5, "take", 32),
        Move(40, "submit", 37),
        Move(20, "reload_back", 45),
        Move(80, "release", 27),
        Move(80, "clock", 34),
    )


def test_a_node_that_was_stored_as_ready_without_an_answer_keeps_its_server() -> None:
    """Another launcher freed it before the first one looked what had become of its write, and deleted the server."""
    replay(
        Setup(launchers=2, max_servers=2, min_ready=1, order=638889316, sends_after_death=False, pools=3),
        Move(5, "cut", 4),
        Move(2, "freeze", 40),
        Move(10, "release", 36),
        Move(150, "zombie", 12),
        Move(0, "zombie", 47),
    )


def test_a_pool_that_removes_its_old_entry_without_an_answer_is_registered_again() -> None:
    """It took the entry that it had removed for one that is there, and served nobody any more."""
    replay(
        Setup(launchers=2, max_servers=3, order=820725301, pools=3, cloud_limit=3),
        Move(150, "zombie", 3),
        Move(150, "serve_and_cut", 15),
    )


def test_pools_that_share_the_limit_of_a_cloud() -> None:
    """Requests waited for ever for the room that unused nodes of another pool took, or that each other held."""
    replay(
        Setup(launchers=2, max_servers=3, min_ready=2, order=1021312291, pools=2, cloud_limit=3),
        Move(150, "take", 3),
        Move(10, "submit", 16),
        Move(150, "stall", 33),
    )
    replay(
        Setup(launchers=2, max_servers=2, order=290054927, pools=3, cloud_limit=2),
        Move(1, "submit", 8),
        Move(10, "submit", 5),
        Move(150, "stall", 42),
        Move(0, "submit", 19),
        Move(5, "submit", 47),
    )
