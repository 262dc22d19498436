# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.cmd.daemon`."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from nodepool.cmd import app


class Cycle:
    """Refers to itself."""

    def __init__(self) -> None:
        self.me = self


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    threshold = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*threshold)


def test_what_is_there_is_left_alone() -> None:
    """Cycles that were garbage before are collected, and so are those that come later, or are left by a reload."""
    before = weakref.ref(Cycle())
    app.look_less_often()
    assert before() is None
    assert gc.get_freeze_count() > 1000
    assert gc.get_threshold()[0] == app.YOUNG_OBJECTS
    kept = Cycle()
    reloaded = weakref.ref(kept)
    app.look_less_often()
    del kept
    gc.collect()
    assert reloaded() is not None, "it is frozen"
    app.look_less_often()
    assert reloaded() is None
    later = weakref.ref(Cycle())
    gc.collect()
    assert later() is None


def test_in_a_command() -> None:
    """Also when it ends by an error."""
    gc.unfreeze()

    def work() -> None:
        assert (gc.get_threshold()[0], gc.get_freeze_count()) == (app.COMMAND_OBJECTS, 0)
        raise SystemExit(2)

    with pytest.raises(SystemExit), app.in_a_command():
        work()
    assert gc.get_freeze_count() > 1000
