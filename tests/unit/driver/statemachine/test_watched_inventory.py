# SPDX-License-Identifier: Apache-2.0
"""An inventory that is told what changes."""

from __future__ import annotations

from typing import Any

from nodepool.driver.statemachine.watched_inventory import SILENT_SECONDS, WatchedInventory
from tests.unit.driver.statemachine.instances import Seen


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Watched(WatchedInventory[Any]):
    """Without its thread."""

    def _start(self) -> None:
        self.on_start()

    def pause(self) -> float:
        with self._changed:
            return self._pause()


def made(clock: Clock) -> Watched:
    return Watched("p", lambda since: [], clock=clock)


def test_news_wakes() -> None:
    """O-8: who waits is woken by what is told, and by nothing that is no news."""
    woken: list[str] = []
    inventory = made(Clock())
    waiter = inventory.wait_for("boot", lambda: woken.append("x"), "1")
    record = Seen("1")
    inventory.put(record)
    inventory.put(record)
    assert woken == ["x"]
    inventory.touch(waiter)
    inventory.remove("1")
    assert woken == ["x", "x"]
    assert inventory.is_gone("1")


def test_ids_are_used_again() -> None:
    """KU-10: an instance with the id of one that is gone is another one."""
    inventory = made(Clock())
    inventory.remove("1")
    inventory.revive("1")
    assert not inventory.is_gone("1")
    inventory.remove("1", another=True)
    assert not inventory.is_gone("1")
    inventory.remove("1")
    inventory.put(Seen("1"))
    assert not inventory.is_gone("1")
    assert inventory.known() == [Seen("1")]


def test_list_of_a_watch_that_is_older() -> None:
    """O-8: the list of a watch that lacks an instance says nothing of one that was shown since it began."""
    clock = Clock()
    woken: list[str] = []
    inventory = made(clock)
    inventory.put(Seen("1"))
    waiter = inventory.wait_for("boot", lambda: woken.append("x"), "1")
    inventory.remove("1", since=clock.now)
    assert inventory.known() == [Seen("1")]
    assert not inventory.is_gone("1")
    assert not woken
    clock.now += 1
    inventory.remove("1", since=clock.now)
    assert inventory.known() == []
    assert inventory.is_gone("1")
    assert woken == ["x"]
    inventory.done(waiter)


def test_end_of_one_that_nobody_had_seen() -> None:
    """O-8: an instance that may come yet, came, and went is gone: a list that is late does not bring it back."""
    clock = Clock()
    inventory = made(clock)
    inventory.set_gone("1", was_there=False)
    inventory.put(Seen("1"))
    inventory.remove("1")
    clock.now += 1
    inventory.listed([Seen("1")], clock.now)
    assert inventory.is_gone("1")
    assert inventory.known() == []


def test_no_lists_while_it_is_told() -> None:
    """O-8: nothing is listed while a watch lives; a watch that is silent for long may be dead."""
    clock = Clock()
    inventory = made(clock)
    assert inventory.pause() == float("inf")
    inventory.heard()
    waiter = inventory.wait_for("boot", lambda: None, "1")
    assert inventory.pause() == SILENT_SECONDS
    clock.now += SILENT_SECONDS - 15
    inventory.touch(waiter)
    assert inventory.pause() == 15
    inventory.heard()
    assert inventory.pause() == SILENT_SECONDS


def test_lists_where_it_must() -> None:
    """O-8: for what watches do not tell, and for who needs a complete list."""
    inventory = made(Clock())
    inventory.heard()
    inventory.lists = True
    waiter = inventory.wait_for("boot", lambda: None, "1")
    assert inventory.pause() < 1
    inventory.done(waiter)
    inventory.lists = False
    complete = inventory.wait_for("search", lambda: None, complete=True)
    assert inventory.pause() <= 0
    inventory.done(complete)


def test_watches_begin_with_the_first_waiter() -> None:
    """O-8: nobody waits: nothing is watched."""
    begun: list[bool] = []
    inventory = made(Clock())
    inventory.on_start = lambda: begun.append(True)
    assert not begun
    waiter = inventory.wait_for("boot", lambda: None, "1")
    assert begun
    inventory.done(waiter)
