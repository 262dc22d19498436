# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.static.provider` by its single pass, against a real sshd."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable

import pytest

from nodepool.driver.static.provider import RESYNC_SECONDS, StaticProvider
from nodepool.exceptions import ZKConflict, ZKConnectionError
from nodepool.model import states
from nodepool.model.node import Node
from tests.support.ports import free_ports
from tests.support.sshd import SshServer
from tests.support.wait import wait_for
from tests.unit.driver.static.conftest import Lab, load

OFF = {"host-key-checking": False}


def listening(port: int) -> socket.socket:
    """A host that accepts connections while the block runs."""
    return socket.create_server(("127.0.0.1", port))


def used(lab: Lab, node: Node) -> Node:
    """The node as the framework hands it over: released, marked, locked."""
    node.state = states.DELETING
    lab.zk.nodes.lock_and_save(node)
    return node


def twin(node: Node) -> Node:
    """Another node of the same slot, as another launcher would store it."""
    copy = node.copy()
    copy.id = copy.version = None
    return copy


def test_registers_every_slot_of_a_real_host(lab: Lab, sshd: SshServer) -> None:
    """S-1, S-2: one ready node a slot, with all scanned keys."""
    host = {"name": "127.0.0.9", "connection-port": sshd.port, "max-parallel-jobs": 2, "host-key": sshd.host_keys[1]}
    assert lab.settle(lab.provider(host, pool={"node-attributes": {"a": 1}})) == RESYNC_SECONDS
    nodes = lab.zk.all_nodes()
    assert [node.slot for node in nodes] == [0, 1]
    assert {node.state for node in nodes} == {states.READY}
    assert sorted(nodes[0].host_keys) == sorted(sshd.host_keys)
    assert nodes[0].public_ipv4 == nodes[0].interface_ip == nodes[0].external_id == "127.0.0.9"
    assert nodes[0].attributes == {"a": 1}


def test_wrong_host_key_is_not_registered(lab: Lab, sshd: SshServer, caplog: pytest.LogCaptureFixture) -> None:
    """S-3: the configured keys must be among the scanned ones; tried again after 60 s."""
    host = {"connection-port": sshd.port, "host-key": [sshd.host_keys[0], "ssh-rsa WRONG"]}
    provider = lab.provider(host)
    assert lab.settle(provider) == 60
    assert lab.zk.all_nodes() == []
    assert "ssh-rsa WRONG" in caplog.text
    lab.clock.now += 59
    assert provider.run_once() == 1
    lab.clock.now += 1
    provider.run_once()
    assert provider.checks_under_way


def test_hosts_that_are_down_do_not_stop_others(
    lab: Lab, sshd: SshServer, down_port: Callable[[], int], caplog: pytest.LogCaptureFixture
) -> None:
    """S-4: each host has its own back-off, which is logged once."""
    down = {"name": "127.0.0.2", "connection-port": down_port()}
    unknown = {"name": "no..such..name"}
    provider = lab.provider(down, unknown, {"connection-port": sshd.port}, {"name": "127.0.0.3", **OFF})
    assert lab.settle(provider) == 1
    assert sorted(str(node.hostname) for node in lab.zk.all_nodes()) == ["127.0.0.1", "127.0.0.3"]
    waits = []
    for _ in range(7):
        lab.clock.now += lab.settle(provider)
        waits.append(lab.settle(provider))
    assert waits == [2, 4, 8, 16, 32, 60, 60]
    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 2


def test_winrm_needs_a_tcp_connection_only(lab: Lab, sshd: SshServer, down_port: Callable[[], int]) -> None:
    """S-5: other connection types: TCP check, no host keys, even if some are configured."""
    winrm = {"connection-type": "winrm", "host-key": "ssh-rsa AAAA"}
    lab.settle(lab.provider({**winrm, "connection-port": sshd.port}, {**winrm, "connection-port": down_port()}))
    nodes = lab.zk.all_nodes()
    assert [(node.connection_port, node.host_keys, node.connection_type) for node in nodes] == [
        (sshd.port, [], "winrm")
    ]


def test_without_host_key_checking_nothing_is_contacted(lab: Lab, down_port: Callable[[], int]) -> None:
    """S-5: no check; the configured keys are stored."""
    provider = lab.provider({**OFF, "connection-port": down_port(), "host-key": ["ssh-rsa AAAA"]})
    lab.settle(provider)
    (node,) = lab.zk.all_nodes()
    assert node.host_keys == ["ssh-rsa AAAA"]
    check = provider.check_alive(node)
    assert check.done()
    assert check.result() is True


def test_changes_are_made_in_place(lab: Lab, sshd: SshServer) -> None:
    """S-6: after a reload a free node has the new fields and its old id; a busy one is left alone."""
    host = {"connection-port": sshd.port, "max-parallel-jobs": 2}
    lab.settle(lab.provider(host))
    busy = lab.zk.all_nodes()[1]
    lab.zk.change(busy.key, allocated_to="200-0000000001")
    lab.settle(lab.provider({**host, "labels": ["small", "big"], "python-path": "/usr/bin/python3"}))
    free, left = lab.zk.all_nodes()
    assert (free.id, free.type, free.python_path) == ("0000000000", ["small", "big"], "/usr/bin/python3")
    assert (left.id, left.type) == (busy.id, ["small"])


def test_node_lost_at_start_is_looked_for_soon(lab: Lab, sshd: SshServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """S-9: a host that fails the check at the start loses its node, and is tried again in a second, not in a minute."""
    host = {"connection-port": sshd.port}
    lab.settle(lab.provider(host))

    def fail(*_: object) -> None:
        raise OSError("frozen")

    provider = lab.provider(host)
    with monkeypatch.context() as down:
        down.setattr("nodepool.driver.static.checks.check_host", fail)
        provider.run_once()
        wait_for("the check ends", lambda: provider.has_results)
        assert provider.run_once() == 1
    assert lab.zk.all_nodes() == []
    lab.clock.now += 1
    lab.settle(provider)
    assert len(lab.zk.all_nodes()) == 1


def test_host_keys_are_refreshed_at_start(lab: Lab, sshd: SshServer) -> None:
    """S-6: a host that got new keys while nobody looked."""
    lab.settle(lab.provider({"connection-port": sshd.port}))
    lab.zk.change("0000000000", host_keys=["ssh-rsa OLD"])
    lab.settle(lab.provider({"connection-port": sshd.port}))
    (node,) = lab.zk.all_nodes()
    assert node.id == "0000000000"
    assert sorted(node.host_keys) == sorted(sshd.host_keys)


def test_another_port_is_another_host(lab: Lab) -> None:
    """S-6, S-7: the old node goes, a new one comes."""
    lab.settle(lab.provider({**OFF, "connection-port": 22}))
    lab.settle(lab.provider({**OFF, "connection-port": 2222}))
    assert [(node.id, node.connection_port) for node in lab.zk.all_nodes()] == [("0000000001", 2222)]


def test_removed_hosts_go_when_they_are_free(lab: Lab) -> None:
    """S-7: free nodes are removed; busy ones after use, and they are not registered again."""
    two = {**OFF, "max-parallel-jobs": 2}
    lab.settle(lab.provider(two))
    busy = lab.zk.all_nodes()[1]
    lab.zk.change(busy.key, state=states.IN_USE)
    provider = lab.provider({**OFF, "name": "127.0.0.5"})
    lab.settle(provider)
    assert [node.hostname for node in lab.zk.all_nodes()] == ["127.0.0.1", "127.0.0.5"]
    released = lab.zk.all_nodes()[0]
    assert provider.replacementFor(released) is None
    task = provider.startNodeCleanup(used(lab, released))
    task.join(30)
    assert not task.is_alive()
    assert [node.hostname for node in lab.zk.all_nodes()] == ["127.0.0.5"]
    lab.settle(provider)
    assert [node.hostname for node in lab.zk.all_nodes()] == ["127.0.0.5"]


def test_released_host_comes_back_in_one_write(lab: Lab, sshd: SshServer) -> None:
    """S-8: a new scan, then the old node is replaced by the new one in one transaction."""
    provider = lab.provider({"connection-port": sshd.port})
    lab.settle(provider)
    node = used(lab, lab.zk.all_nodes()[0])
    assert provider.replacementFor(node) is None
    lab.zk.calls.clear()
    task = provider.startNodeCleanup(node)
    task.join(30)
    assert lab.zk.calls == ["replaceNode"]
    (new,) = lab.zk.all_nodes()
    assert (new.id, new.state, new.slot) == ("0000000001", states.READY, 0)
    assert sorted(new.host_keys) == sorted(sshd.host_keys)


def test_released_host_without_check_has_a_successor_at_once(lab: Lab) -> None:
    """S-8: the framework writes it together with the removal."""
    provider = lab.provider(OFF)
    lab.settle(provider)
    lab.zk.calls.clear()
    new = provider.replacementFor(lab.zk.all_nodes()[0])
    assert new is not None
    assert (new.id, new.state, new.public_ipv4) == (None, states.READY, "127.0.0.1")
    assert lab.zk.calls == []


def test_released_host_that_is_down_leaves_and_comes_back(lab: Lab) -> None:
    """S-8, S-4: the node goes at once; the host is tried again after a second."""
    port = free_ports(1)[0]
    provider = lab.provider({"connection-port": port, "connection-type": "winrm", "max-parallel-jobs": 2})
    with listening(port):
        lab.settle(provider)
    nodes = lab.zk.all_nodes()
    assert len(nodes) == 2
    provider.startNodeCleanup(used(lab, nodes[0])).join(30)
    assert lab.settle(provider) == 1
    # The other slot's free node is on the same dead host.
    assert lab.zk.all_nodes() == []
    with listening(port):
        lab.clock.now += 1
        lab.settle(provider)
    assert [node.slot for node in lab.zk.all_nodes()] == [0, 1]


def test_failed_replacement_leaves_nothing_locked(lab: Lab, sshd: SshServer) -> None:
    """S-8: with an error of ZooKeeper the node ends unlocked and `deleting`, for the next try."""
    provider = lab.provider({"connection-port": sshd.port})
    lab.settle(provider)
    node = used(lab, lab.zk.all_nodes()[0])
    lab.zk.fail["replaceNode"] = ZKConnectionError("no answer")
    provider.startNodeCleanup(node).join(30)
    (left,) = lab.zk.all_nodes()
    assert left.state == states.DELETING
    assert not lab.zk.isNodeLocked(left)


def test_replacement_refused_because_somebody_waits_for_the_lock(lab: Lab, sshd: SshServer) -> None:
    """S-8: then the node is only removed, and the next pass registers the slot."""
    provider = lab.provider({"connection-port": sshd.port})
    lab.settle(provider)
    answers: list[BaseException | None] = [ZKConflict("NotEmpty"), None]
    lab.zk.fail["replaceNode"] = lambda: answers.pop(0)
    provider.startNodeCleanup(used(lab, lab.zk.all_nodes()[0])).join(30)
    assert lab.zk.all_nodes() == []
    lab.settle(provider)
    assert len(lab.zk.all_nodes()) == 1


def test_dead_host_is_noticed_before_it_is_handed_out(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    """S-9: the check fails, the node is deregistered, the host is tried again."""
    port = free_ports(1)[0]
    provider = lab.provider({"connection-port": port, "connection-type": "winrm"})
    with listening(port):
        lab.settle(provider)
        (node,) = lab.zk.all_nodes()
        assert provider.check_alive(node).result(30) is True
    assert provider.check_alive(node).result(30) is False
    assert lab.zk.all_nodes() == []
    assert lab.settle(provider) == 1
    assert "is not registered: no TCP connection within 5 s" in caplog.text


def test_node_of_a_removed_host_is_not_handed_out(lab: Lab) -> None:
    """S-7, S-9: between a reload and the removal of the node."""
    lab.settle(lab.provider(OFF))
    (node,) = lab.zk.all_nodes()
    assert lab.provider({**OFF, "name": "127.0.0.8"}).check_alive(node).result(30) is False


def test_two_launchers_do_not_register_a_slot_twice(lab: Lab) -> None:
    """S-10: both see an empty slot; the second one looks again under the lock."""
    first, second = lab.provider(OFF), lab.provider(OFF)
    first.run_once()
    second.run_once()
    wait_for("both have checked", lambda: first.has_results and second.has_results)
    both = [threading.Thread(target=provider.run_once) for provider in (first, second)]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    assert len(lab.zk.all_nodes()) == 1


def test_of_two_nodes_in_one_slot_one_is_handed_out(lab: Lab) -> None:
    """S-10: somebody registered a slot twice. The younger node is refused and goes; the older one has its slot."""
    provider = lab.provider(OFF)
    lab.settle(provider)
    (first,) = lab.zk.all_nodes()
    second = lab.zk.add(twin(first))
    assert provider.check_alive(first).result(30) is True
    assert provider.replacementFor(first) is None
    assert provider.check_alive(second).result(30) is False
    assert [node.id for node in lab.zk.all_nodes()] == [first.id]
    assert provider.replacementFor(first) is not None


def test_node_is_not_handed_out_beside_one_in_use(lab: Lab) -> None:
    """S-10: whichever is older."""
    provider = lab.provider(OFF)
    lab.settle(provider)
    (first,) = lab.zk.all_nodes()
    second = lab.zk.add(twin(first))
    lab.zk.change(second.key, state=states.IN_USE)
    assert provider.check_alive(first).result(30) is False
    assert [node.id for node in lab.zk.all_nodes()] == [second.id]


def test_refused_node_stays_when_zookeeper_is_away(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    """S-10: it is not handed out all the same, and the next pass removes it."""
    provider = lab.provider(OFF)
    lab.settle(provider)
    (first,) = lab.zk.all_nodes()
    second = lab.zk.add(twin(first))
    lab.zk.fail["deleteNode"] = ZKConnectionError("away")
    assert provider.check_alive(second).result(30) is False
    assert f"Node {second.id} stays until the next pass" in caplog.text


def test_a_node_that_vanished_is_registered_again(lab: Lab) -> None:
    """S-10: the next pass repairs what somebody deleted; a notification brings it at once."""
    provider = lab.provider(OFF)
    lab.settle(provider)
    lab.zk.deleteRawNode("0000000000")
    lab.settle(provider)
    assert [node.id for node in lab.zk.all_nodes()] == ["0000000001"]


def test_idle_provider_does_nothing(lab: Lab, sshd: SshServer) -> None:
    """S-13: neither registers nor deregisters; a released node is left for the successor."""
    provider = lab.provider({"connection-port": sshd.port, "max-parallel-jobs": 2})
    lab.settle(provider)
    nodes = lab.zk.all_nodes()
    lab.zk.deleteRawNode(nodes[1].key)
    provider.idle()
    node = used(lab, nodes[0])
    assert provider.replacementFor(node) is None
    provider.startNodeCleanup(node).join(30)
    lab.settle(provider)
    (left,) = lab.zk.all_nodes()
    assert (left.id, left.state) == (nodes[0].id, states.DELETING)
    assert not lab.zk.isNodeLocked(left)


def test_stopped_provider_gives_released_nodes_back(lab: Lab) -> None:
    """S-13: after `stop` nothing waits for a check that never comes."""
    provider = lab.provider(OFF)
    lab.settle(provider)
    provider.stop()
    (node,) = lab.zk.all_nodes()
    task = provider.startNodeCleanup(used(lab, node))
    task.join(30)
    assert not task.is_alive()
    assert not lab.zk.isNodeLocked(node)
    assert provider.check_alive(node).result(30) is True


def test_an_error_of_zookeeper_loses_no_check(lab: Lab) -> None:
    """S-1: what was found out is registered at the next pass, without a new check."""
    provider = lab.provider(OFF)
    provider.run_once()
    wait_for("the check ends", lambda: provider.has_results)
    lab.zk.fail["getNodes"] = ZKConnectionError("away")
    with pytest.raises(ZKConnectionError):
        provider.run_once()
    del lab.zk.fail["getNodes"]
    provider.run_once()
    assert not provider.checks_under_way
    assert len(lab.zk.all_nodes()) == 1


def test_the_thread_survives_errors_and_ends(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    """S-1, S-13: `start` returns at once, the thread registers, survives an error, and ends after `stop`."""
    provider = StaticProvider(load(OFF))
    errors: list[BaseException | None] = [ValueError("odd")]
    lab.zk.fail["nodeIterator"] = lambda: errors.pop() if errors else None
    lab.providers.append(provider)
    provider.start(lab.zk)
    wait_for("the error is logged", lambda: "ValueError: odd" in caplog.text)
    provider.nodeDeletedNotification(Node("small"))
    provider.wake()
    wait_for("the host is registered", lambda: len(lab.zk.all_nodes()) == 1)


def test_in_a_command_nothing_is_registered(lab: Lab) -> None:
    """S-13: `nodepool delete --now` starts the provider only to recycle one node."""
    lab.settle(lab.provider(OFF))
    (node,) = lab.zk.all_nodes()
    provider = StaticProvider(load(OFF, {**OFF, "name": "127.0.0.2"}))
    lab.providers.append(provider)
    lab.zk.cache = None  # type: ignore[assignment]
    provider.start(lab.zk)
    provider.startNodeCleanup(used(lab, node)).join(30)
    assert [(found.id, found.hostname) for found in lab.zk.all_nodes()] == [("0000000001", "127.0.0.1")]


def test_label_ready(lab: Lab) -> None:
    """S-11: a label that a host has can be served; name or label object."""
    provider = lab.provider({**OFF, "labels": "small"})
    assert provider.labelReady("small")
    assert not provider.labelReady("big")
    assert provider.labelReady(type("Label", (), {"name": "small"})())
    assert provider.listNodes() == []
    assert provider.errorLabels() == []
