# SPDX-License-Identifier: Apache-2.0
"""Launches whose creation gave no answer, and the numbers of their attempts (rules L)."""

from __future__ import annotations

from typing import Any

import pytest

from nodepool.driver.statemachine import StateMachine
from nodepool.exceptions import CloudUnavailableException
from tests.support.machine_driver import CreateMachine
from tests.support.wait import wait_for
from tests.unit.driver.statemachine.conftest import MakeSite


def test_lost_answer(make_site: MakeSite) -> None:
    """Never two instances of a node: what a creation without an answer made is found and deleted before the next."""
    site = make_site({"lost-answers": 1})
    (node,) = site.serve("small")
    assert [instance.id for instance in site.cloud.instances()] == [node.external_id]
    assert (site.cloud.calls["create"], site.cloud.peak) == (2, 1)


def test_lost_answer_shows_late(make_site: MakeSite) -> None:
    """The list does not show the instance at first."""
    site = make_site({"lost-answers": 1})
    wait_for("the limits are known", site.provider.estimatedNodepoolQuota)
    site.adapter.hide_from_lists = 1
    (node,) = site.serve("small")
    assert [instance.id for instance in site.cloud.instances()] == [node.external_id]
    assert site.cloud.peak == 1


def test_attempts_are_numbered(make_site: MakeSite) -> None:
    """L-4: the creation of each attempt has a key of its own, made from its number."""
    site = make_site()
    site.cloud.set(fail_launches=2)
    attempts: list[int] = []

    def note(machine: StateMachine) -> None:
        if isinstance(machine, CreateMachine) and machine.attempt not in attempts:
            attempts.append(machine.attempt)

    site.adapter.hooks.append(note)
    site.serve("small")
    assert attempts == [1, 2, 3]


@pytest.mark.parametrize(("searched", "looks"), [(False, 3), (True, 1)])
def test_driver_has_looked(make_site: MakeSite, monkeypatch: pytest.MonkeyPatch, searched: bool, looks: int) -> None:
    """What a driver has looked for itself, for some seconds, is looked for once more, and not for seconds again."""
    site = make_site()
    error = CloudUnavailableException("500")
    error.searched = searched
    errors = [error]

    def fail_once(machine: StateMachine) -> None:
        if isinstance(machine, CreateMachine) and errors:
            raise errors.pop()

    site.adapter.hooks.append(fail_once)
    found: list[str] = []
    find = site.provider.finder.find

    def note(node_id: str) -> Any:
        found.append(node_id)
        return find(node_id)

    monkeypatch.setattr(site.provider.finder, "find", note)
    site.serve("small")
    assert len(found) == looks


def test_lost_answer_of_the_last_attempt(make_site: MakeSite) -> None:
    """What it made is remembered in the node, so that it goes with it."""
    site = make_site({"lost-answers": 1, "launch-retries": 1})
    site.fail("small")
    (node,) = site.zk.nodeIterator()
    assert [instance.id for instance in site.cloud.instances()] == [node.external_id]
