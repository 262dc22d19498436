# SPDX-License-Identifier: Apache-2.0
"""nodepool.zk.caches, with a server whose events and answers come in any order that ZooKeeper allows.

An event may overtake the answer to an older read; an answer never overtakes the event of a change that it shows.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, cast

import pytest

from nodepool.exceptions import ZKConnectionError
from nodepool.model.image import ImagesView
from nodepool.zk import caches, paths
from nodepool.zk.caches import ImageCache
from nodepool.zk.client import ZooKeeperClient
from tests.support.event_server import EventServer

LOCK = f"{caches.build_lock('debian')}/a{paths.CONTENDER_MARK}0000000001"
BUILD = caches.build("debian", "b1")


@pytest.fixture
def server() -> EventServer:
    return EventServer(caches.IMAGES)


def cache_of(server: EventServer) -> ImageCache:
    return ImageCache(cast(ZooKeeperClient, server))


def plain(view: ImagesView) -> dict[str, Any]:
    """What a view shows, to be compared."""
    return {
        name: (
            *(image.paused, image.build_requested, image.build_locked),
            {
                build.id: (
                    *(build.state, build.locked, sorted(build.uploading)),
                    {
                        provider: [(u.id, u.record and (u.record.state, u.record.version), u.locked) for u in uploads]
                        for provider, uploads in build.uploads.items()
                    },
                )
                for build in image.builds.values()
            },
        )
        for name, image in view.images.items()
    }


def moves(server: EventServer, rng: random.Random) -> None:
    """Something that builders, commands or nobody would do."""
    image, build, provider = rng.choice("xy"), rng.choice("12"), rng.choice("pq")
    state = rng.choice(["ready", "failed", "deleting"])
    places = [
        caches.image(image),
        caches.pause(image),
        caches.build_request(image),
        caches.build(image, build),
        f"{caches.build_lock(image)}/a{paths.CONTENDER_MARK}0000000001",
        f"{caches.build_id_lock(image, build)}/a{paths.CONTENDER_MARK}0000000001",
        f"{caches.upload_lock(image, build, provider)}/a{paths.CONTENDER_MARK}0000000001",
        caches.upload(image, build, provider, rng.choice(["0000000001", "0000000002"])),
        f"{caches.build(image, build)}/unknown/below",
    ]
    place = rng.choice(places)
    if rng.random() < 0.4:
        server.delete(place)
    else:
        server.put(place, **({"state": state, "state_time": 1.0} if rng.random() < 0.9 else {}))


@pytest.mark.parametrize("seed", range(40))
def test_in_the_end_the_view_is_what_is_there(server: EventServer, seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(20):
        moves(server, rng)
    cache = cache_of(server)
    server.events.clear()
    server.delivered = server.counted
    travel = [server.serve, server.deliver_event, server.deliver_answer]
    for _ in range(400):
        if rng.random() < 0.3:
            moves(server, rng)
        elif rng.random() < 0.01:
            server.lose_connection()
        else:
            rng.choice(travel)()
    server.settle()
    fresh = EventServer(caches.IMAGES)
    fresh.znodes = server.znodes
    expected = cache_of(fresh)
    fresh.settle()
    assert cache.ready.is_set()
    assert expected.ready.is_set()
    assert cache.pending_reads == 0
    assert plain(cache.snapshot()) == plain(expected.snapshot())


@pytest.mark.parametrize("seed", range(40))
def test_free_lock_beside_a_build_that_has_ended(server: EventServer, seed: int) -> None:
    """Who looks never takes a build for abandoned whose holder stored its end before the lock was free."""
    rng = random.Random(seed)
    server.put(caches.build_lock("debian"))
    cache = cache_of(server)
    server.settle()
    seen: set[tuple[bool, str | None]] = set()

    def look(_: str) -> None:
        image = cache.snapshot().image("debian")
        build = image.builds.get("b1")
        seen.add((image.build_locked, None if build is None else build.state))

    cache.add_listener(look)
    steps: list[Callable[[], None]] = [
        lambda: server.put(LOCK),
        lambda: server.put(BUILD, state="building", state_time=1.0),
        lambda: server.put(BUILD, state="ready", state_time=2.0),
        lambda: server.delete(LOCK),
    ]
    for step in steps:
        step()
        for _ in range(rng.randrange(6)):
            rng.choice([server.serve, server.deliver_event, server.deliver_answer])()
    server.settle()
    assert (False, "building") not in seen
    assert (False, "ready") in seen


def test_connection_ends_while_something_is_asked(server: EventServer) -> None:
    """In the connection's thread nothing may be raised."""
    cache = cache_of(server)
    server.settle()

    def closed(*_: Any) -> None:
        raise ZKConnectionError("closing")

    server.kazoo.call = closed
    server.put(caches.build("debian", "b1"), state="ready")
    server.settle()
    assert cache.snapshot().image("debian").builds == {}


def test_nothing_is_known_before_everything_was_read(server: EventServer) -> None:
    server.put(caches.pause("debian"))
    cache = cache_of(server)
    server.serve()
    assert (cache.complete, cache.ready.is_set(), cache.wait_ready(0.0)) == (False, False, False)
    server.settle()
    assert (cache.complete, cache.ready.is_set()) == (True, True)
    server.tell_session("suspended")
    assert (cache.complete, cache.ready.is_set()) == (True, False)
    assert cache.snapshot().image("debian").paused
