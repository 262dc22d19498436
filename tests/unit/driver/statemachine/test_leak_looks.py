# SPDX-License-Identifier: Apache-2.0
"""When a provider looks for leaked resources again (rules D)."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from nodepool.driver.fake.cloud import CloudError
from nodepool.driver.statemachine import Resource
from nodepool.driver.statemachine import leaks as sweeps
from nodepool.testing.memory_zk import MemoryZooKeeper
from tests.support.machine_driver import MachineAdapter
from tests.support.wait import DEADLINE_SECONDS, wait_for
from tests.unit.driver.statemachine.conftest import MakeSite, Site


class Looks:
    """Counts how often the adapter is asked for its resources, and answers.

    :param answer: called with the number of the look, from 1; None = there are no resources.
    """

    def __init__(
        self, site: Site, monkeypatch: pytest.MonkeyPatch, answer: Callable[[int], list[Resource]] | None = None
    ) -> None:
        self.count = 0
        self._site = site
        self._answer = answer
        monkeypatch.setattr(sweeps, "LOOK_AGAIN_SECONDS", 0.01)
        monkeypatch.setattr(site.adapter, "listResources", self._look)

    def _look(self) -> list[Resource]:
        self.count += 1
        return [] if self._answer is None else self._answer(self.count)

    def wait_over(self) -> None:
        """Waits until none is due any more."""
        wait_for("the looks are over", lambda: self.count and not len(self._site.provider.scheduler))


def fail(number: int) -> list[Resource]:
    raise CloudError("away")


def test_another_look_comes_by_itself(
    make_site: MakeSite, zk: MemoryZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D-2: what one sweep suspects is not left to the regular one."""
    monkeypatch.setattr(sweeps, "LOOK_AGAIN_SECONDS", 0.01)
    site = make_site()
    (node,) = site.serve("small")
    zk.deleteRawNode(node.key)
    site.provider.cleanupLeakedResources()
    wait_for("the leaked instance is gone", lambda: not site.cloud.instances())


def test_what_the_adapter_suspects(make_site: MakeSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """What carries no metadata is seen twice by the adapter itself, and not a minute later."""
    site = make_site()
    looks = Looks(site, monkeypatch)
    monkeypatch.setattr(site.adapter, "suspectsLeaks", lambda: looks.count < 2)
    site.provider.cleanupLeakedResources()
    looks.wait_over()
    assert looks.count == 2


def test_something_new_in_the_last_look(make_site: MakeSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is seen first gets its second look, however many there were; what stays gets no third."""
    site = make_site()
    resources = [
        Resource({"nodepool_provider_name": "nowhere", "nodepool_node_id": node_id}, "port") for node_id in "123"
    ]
    looks = Looks(site, monkeypatch, lambda number: resources[:number])
    monkeypatch.setattr(site.adapter, "deleteResource", lambda _: None)
    site.provider.look_for_leaks_soon(1)
    looks.wait_over()
    assert looks.count == 4


def test_cloud_rests(make_site: MakeSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """The look that a cloud did not get while it was away comes when it is back, not with the next regular sweep."""
    site = make_site()
    looks = Looks(site, monkeypatch)
    with monkeypatch.context() as away:
        away.setattr(type(site.provider.calls), "circuit_open", True)
        site.provider.cleanupLeakedResources()
        assert not looks.count
        assert len(site.provider.scheduler) == 1
    looks.wait_over()


def test_replaced_provider(make_site: MakeSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look that is due later does not keep a provider that has a successor."""
    site = make_site()
    monkeypatch.setattr(site.adapter, "suspectsLeaks", lambda: True)
    site.provider.cleanupLeakedResources()
    assert len(site.provider.scheduler) == 1
    site.provider.idle()
    wait_for("the look is over", lambda: not len(site.provider.scheduler))
    site.provider.look_for_leaks_soon()
    assert not len(site.provider.scheduler)


def test_sweep_that_fails(make_site: MakeSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller hears of it, and another look comes soon."""
    site = make_site()
    looks = Looks(site, monkeypatch, fail)
    with pytest.raises(CloudError):
        site.provider.cleanupLeakedResources()
    looks.wait_over()
    assert looks.count == 2


def test_look_that_takes_long(make_site: MakeSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """It holds up no launch, also where these have one thread (reference/driver 9, ``advance_threads``)."""
    monkeypatch.setattr(MachineAdapter, "advance_threads", 1)
    site = make_site()
    begun, go_on = threading.Event(), threading.Event()

    def listed() -> list[Resource]:
        begun.set()
        go_on.wait(DEADLINE_SECONDS)
        return []

    monkeypatch.setattr(sweeps, "LOOK_AGAIN_SECONDS", 0.01)
    monkeypatch.setattr(site.adapter, "listResources", listed)
    site.provider.look_for_leaks_soon(1)
    assert begun.wait(DEADLINE_SECONDS)
    site.serve("small")
    go_on.set()
    wait_for("the look is over", lambda: not len(site.provider.scheduler))


def test_looks_that_fail(
    make_site: MakeSite, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Two looks, whatever becomes of them; then the next can be asked for."""
    site = make_site()
    looks = Looks(site, monkeypatch, fail)
    site.provider.look_for_leaks_soon()
    site.provider.look_for_leaks_soon()
    looks.wait_over()
    assert looks.count == 2
    assert caplog.text.count("Leaked resources cannot be looked for") == 2
    site.provider.look_for_leaks_soon()
    looks.wait_over()
    assert looks.count == 4


def test_one_sweep_at_a_time(make_site: MakeSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """The regular sweep and a look that was asked for do not disturb each other's suspicions."""
    site = make_site()
    inner: list[bool] = []

    def look_inside() -> list[Resource]:
        inner.append(site.provider.sweep_leaks())
        return []

    monkeypatch.setattr(site.adapter, "listResources", look_inside)
    assert not site.provider.sweep_leaks()
    assert inner == [False]
