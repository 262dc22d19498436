# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import threading

from nodepool.launcher.event_ring import JOIN_SECONDS, EventRing
from nodepool.model.event import Event, What


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_the_newest_are_kept() -> None:
    ring = EventRing(3, Clock())
    for number in range(5):
        ring.add("l1", f"provider p{number}", What.UNAVAILABLE, "HTTP 503", "provider.circuit-open")
    assert [event.subject for event in ring.last(10)] == ["provider p2", "provider p3", "provider p4"]
    assert [event.subject for event in ring.last(1)] == ["provider p4"]
    assert ring.last(0) == []
    assert ring.last(1)[0] == Event(1000.0, "l1", "provider p4", "unavailable", "provider.circuit-open", "HTTP 503", 1)


def test_many_requests_that_fail_for_one_cause_are_one_event() -> None:
    clock = Clock()
    ring = EventRing(10, clock)
    for number in range(300):
        clock.now += JOIN_SECONDS / 1000
        ring.add("c/main", f"request {number}", What.FAILED, "no flavor\nm1", "label.broken")
    (event,) = ring.last(10)
    assert (event.subject, event.count, event.text) == ("request 299", 300, "no flavor m1")
    clock.now += JOIN_SECONDS
    ring.add("c/main", "request 300", What.FAILED, "no flavor\nm1", "label.broken")
    assert [event.count for event in ring.last(10)] == [300, 1]


def test_events_of_two_causes_take_turns() -> None:
    ring = EventRing(10, Clock())
    for number in range(4):
        ring.add("c/main", f"node {number}", What.DELETION_FAILED, "HTTP 500" if number % 2 else "HTTP 503")
    assert [(event.subject, event.count) for event in ring.last(10)] == [("node 2", 2), ("node 3", 2)]


def test_a_provider_that_goes_twice_are_two_events() -> None:
    ring = EventRing(10, Clock())
    ring.add("l1", "provider a", What.UNAVAILABLE)
    ring.add("l1", "provider a", What.UNAVAILABLE)
    assert len(ring.last(10)) == 2


def test_the_listener_is_told_outside_the_lock() -> None:
    ring = EventRing(10, Clock())
    told: list[int] = []
    ring.on_event = lambda: told.append(len(ring.last(10)))
    ring.add("l1", "launcher l1", What.STARTED)
    ring.put(Event(1, "l1", "launcher l1", "reloaded"))
    assert told == [1, 2]


def test_threads_lose_nothing() -> None:
    ring = EventRing(1000, Clock())

    def work(name: str) -> None:
        for number in range(100):
            ring.add("l1", f"host {name}-{number}", What.DOWN)

    threads = [threading.Thread(target=work, args=(str(number),)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({event.subject for event in ring.last(1000)}) == 400
