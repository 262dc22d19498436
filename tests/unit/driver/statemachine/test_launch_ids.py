# SPDX-License-Identifier: Apache-2.0
"""Launches whose instance has an object for an id (rule L-3)."""

from __future__ import annotations

from typing import Any

import pytest

from nodepool.driver.statemachine import Instance, StateMachine
from nodepool.exceptions import CapacityException, LaunchStatusException
from nodepool.model import states
from nodepool.model.node import Node
from nodepool.testing.memory_zk import MemoryZooKeeper
from tests.support.machine_driver import CreateMachine, MachineInstance
from tests.support.wait import wait_for
from tests.unit.driver.statemachine.conftest import MakeSite, Site


class TestIdThatIsAnObject:
    """L-3: as of AWS, ``{"host": ..., "instance": ...}``, which the driver fills in by and by."""

    @pytest.fixture(autouse=True)
    def machines(self, monkeypatch: pytest.MonkeyPatch) -> None:
        plain, load = CreateMachine.advance, MachineInstance.load

        def advance(machine: Any) -> Instance | None:
            if machine.state == machine.START:
                machine.external_id = {}
                machine.state = "host"
                return None
            if machine.state == "host":
                machine._adapter.before_advance(machine)
                machine.external_id["host"] = "h1"
                machine.state = "instance"
                return None
            ids, begun = machine.external_id, "instance" in machine.external_id
            machine.external_id = ids.get("instance")
            if not begun:
                machine.state = machine.START
            try:
                found = plain(machine)
            finally:
                if machine.external_id is not None:
                    ids["instance"] = machine.external_id
                machine.external_id = ids
            if found is not None:
                found.external_id = ids
            return found

        def as_object(self: Any, found: Any) -> None:
            load(self, found)
            self.external_id = {"host": "h1", "instance": found.id}

        monkeypatch.setattr(CreateMachine, "advance", advance)
        monkeypatch.setattr(MachineInstance, "load", as_object)

    def test_stored_as_far_as_it_is_known(
        self, make_site: MakeSite, zk: MemoryZooKeeper, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        site = make_site({"hang": True})
        stored: list[Any] = []
        store = zk.storeNode

        def watched(node: Any) -> None:
            store(node)
            (record,) = zk.nodeIterator()
            if not stored or stored[-1] != record.external_id:
                stored.append(record.external_id)

        monkeypatch.setattr(zk, "storeNode", watched)
        handler = site.worker.accept(site.worker.submit("small"))
        wait_for("the instance is there", site.cloud.instances)
        (instance,) = site.cloud.instances()
        full = {"host": "h1", "instance": instance.id}
        wait_for("its id is stored", lambda: full in stored)
        assert stored == [{"host": "h1"}, full]
        site.cloud.set(hang=False)
        assert site.worker.finish(handler, 30).state == states.FULFILLED

    def test_before_anything_was_made(self, make_site: MakeSite, monkeypatch: pytest.MonkeyPatch) -> None:
        """An empty object names nothing: there is nothing to delete before the next attempt."""
        site = make_site()
        errors: list[Exception] = [CapacityException("full")]
        deleted: list[Any] = []

        def fail_once(machine: StateMachine) -> None:
            if machine.state == "host" and errors:
                raise errors.pop()

        plain = site.adapter.getDeleteStateMachine

        def delete(external_id: Any, log: Any) -> StateMachine:
            deleted.append(external_id)
            return plain(external_id, log)

        monkeypatch.setattr(site.adapter, "getDeleteStateMachine", delete)
        site.adapter.hooks.append(fail_once)
        (node,) = site.serve("small")
        assert node.external_id == {"host": "h1", "instance": site.cloud.instances()[0].id}
        assert deleted == []


class TestIdInAdvance:
    """L-3: a name that follows from the node is stored with its lock, and names nothing until a machine says so."""

    @pytest.fixture
    def site(self, make_site: MakeSite, monkeypatch: pytest.MonkeyPatch) -> Site:
        def id_in_advance(hostname: str, label: Any, metadata: dict[str, str]) -> str:
            return f"{hostname}/{label.name}/{metadata['nodepool_node_id']}/{metadata['nodepool_pool_name']}"

        site = make_site({"hang": True, "launch-retries": 1})
        monkeypatch.setattr(site.adapter, "idInAdvance", id_in_advance)
        return site

    def test_before_anything_is_made(self, site: Site, zk: MemoryZooKeeper) -> None:
        """A launcher that dies now leaves what its successor has to look for."""
        stored: list[Any] = []
        site.adapter.hooks.append(lambda _: stored.extend(node.external_id for node in zk.nodeIterator()))
        handler = site.worker.accept(site.worker.submit("small"))
        wait_for("the instance is there", site.cloud.instances)
        (node,) = zk.nodeIterator()
        assert stored[0] == f"np{node.id}/small/{node.key}/main"
        site.cloud.set(hang=False)
        assert site.worker.finish(handler, 30).state == states.FULFILLED
        (node,) = zk.nodeIterator()
        assert node.external_id == site.cloud.instances()[0].id

    def test_nothing_was_made(self, site: Site, zk: MemoryZooKeeper) -> None:
        """L-7: what a launch announced, and did not make, is not deleted in the cloud."""

        def fail(machine: StateMachine) -> None:
            raise LaunchStatusException("refused")

        site.adapter.hooks.append(fail)
        site.fail("small")
        (node,) = zk.nodeIterator()
        assert (node.state, node.external_id) == (states.FAILED, None)
        site.adapter.hooks.clear()
        site.delete(node)
        assert not zk.getNodes()
        assert site.adapter.calls["delete"] == 0

    def test_launcher_dies(self, site: Site, zk: MemoryZooKeeper) -> None:
        """X-4: an instance that was never made is as good as deleted."""
        node = Node("small")
        node.provider, node.pool, node.state = "nowhere", "main", states.BUILDING
        zk.nodes.create(node)
        node.external_id = site.provider.idInAdvance(node)
        assert node.external_id
        zk.storeNode(node)
        site.delete(node)
        assert not zk.getNodes()

    def test_driver_fails(self, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
        """A-16: the launch goes on without it."""

        def fail(*_: Any) -> None:
            raise RuntimeError("no way")

        monkeypatch.setattr(site.adapter, "idInAdvance", fail)
        site.cloud.set(hang=False)
        (node,) = site.serve("small")
        assert node.external_id == site.cloud.instances()[0].id
