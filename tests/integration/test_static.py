# SPDX-License-Identifier: Apache-2.0
"""The static driver in running launchers: real ZooKeeper, real sshd (rules S)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nodepool.clock import wall_time
from nodepool.model.status import Maintenance, Mode, znode_name
from nodepool.zk import paths
from tests.support.launcher_config import StaticHost, StaticProvider, write_config
from tests.support.pool_status import pool_status
from tests.support.pool_znodes import PoolZnodes
from tests.support.sshd import SshServer
from tests.support.wait import wait_for
from tests.support.workplace import Workplace


def scanned(number: int, port: int, **settings: Any) -> StaticHost:
    """A host whose keys are scanned; every number has an address of its own."""
    return StaticHost(f"127.5.0.{number}", port=port, check=True, **settings)


def fulfilled(znodes: PoolZnodes, request: str) -> list[dict[str, Any]]:
    """Waits for a request and returns its nodes."""
    nodes = [znodes.node(node_id) for node_id in znodes.fulfilled(request)["nodes"]]
    return [node for node in nodes if node is not None]


def test_request_goes_on_with_another_host(workplace: Workplace, znodes: PoolZnodes, tmp_path: Path) -> None:
    """S-9, W-9: the host that died is deregistered, the request gets the one that lives; the host comes back."""

    def hosts() -> dict[str, tuple[bool | None, bool]]:
        """What the status of the pool says of each: whether it is up, and whether there is a reason."""
        status = pool_status(znodes, provider.name)
        return {host.name: (host.up, bool(host.text)) for host in status.hosts} if status else {}

    servers = [SshServer(tmp_path / f"sshd{number}") for number in (1, 2)]
    for server in servers:
        server.start()
    try:
        provider = StaticProvider([scanned(number + 1, server.port) for number, server in enumerate(servers)])
        workplace.launch(provider)
        servers[0].stop()
        first = fulfilled(znodes, znodes.submit(["small"]))
        assert [node["hostname"] for node in first] == ["127.5.0.2"]
        second = znodes.submit(["small"])
        wait_for("the dead host has no node", lambda: len(znodes.nodes()) == 1)
        wait_for("its pool says so", lambda: set(hosts().values()) == {(False, True), (True, False)})
        servers[0].start()
        assert [node["hostname"] for node in fulfilled(znodes, second)] == ["127.5.0.1"]
    finally:
        for server in servers:
            server.stop()


def test_reload(workplace: Workplace, znodes: PoolZnodes, sshd: SshServer) -> None:
    """S-6, S-7, S-13: changed labels in place, removed hosts go, new hosts come; busy ones keep what they have."""
    one, two = scanned(1, sshd.port), scanned(2, sshd.port)
    launcher = workplace.launch(StaticProvider([one, two]))
    by_name = {node["hostname"]: node_id for node_id, node in znodes.nodes().items()}
    request = znodes.submit(["small"])
    (busy,) = fulfilled(znodes, request)
    free_name = next(name for name in by_name if name != busy["hostname"])
    changed = [
        scanned(1, sshd.port, labels=["small", "more"]),
        scanned(2, sshd.port, labels=["small", "more"]),
        scanned(3, sshd.port),
    ]
    write_config(launcher.config_path, workplace.zookeeper, workplace.chroot, [StaticProvider(changed)])

    def updated() -> bool:
        nodes = {node["hostname"]: node for node in znodes.nodes().values()}
        return len(nodes) == 3 and nodes[free_name]["type"] == ["small", "more"]

    wait_for("the free node has the new labels and the new host is there", updated)
    assert znodes.node(by_name[free_name]) is not None
    assert (znodes.node(by_name[busy["hostname"]]) or {})["type"] == ["small"]
    write_config(launcher.config_path, workplace.zookeeper, workplace.chroot, [StaticProvider([changed[2]])])
    wait_for("only the busy and the last host are left", lambda: len(znodes.nodes()) == 2)
    znodes.change_node(by_name[busy["hostname"]], state="used")
    znodes.delete_request(request)
    workplace.wait_nodes(StaticProvider([changed[2]]))


# -- hosts that are taken out of service (S-16, S-17)


WHY = "quarantine: alice: the disk is broken"


def path_of(host: str) -> str:
    return paths.maintenance("host", znode_name(host))


def quarantine(znodes: PoolZnodes, host: str) -> None:
    """What an operator's command writes."""
    record = Maintenance("host", host, Mode.QUARANTINE, "the disk is broken", "alice", wall_time())
    znodes.kazoo.create(path_of(host), json.dumps(record.to_dict()).encode(), makepath=True)


def release(znodes: PoolZnodes, host: str) -> None:
    znodes.kazoo.delete(path_of(host))


def of_host(znodes: PoolZnodes, host: str) -> list[dict[str, Any]]:
    """The host's nodes, by slot."""
    return sorted((n for n in znodes.nodes().values() if n["hostname"] == host), key=lambda node: node["slot"])


def states(znodes: PoolZnodes, host: str) -> list[tuple[str, Any]]:
    """State and comment of the host's nodes, by slot."""
    return [(node["state"], node["comment"]) for node in of_host(znodes, host)]


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("launchers", [1, 2])
def test_a_host_in_use_and_a_ready_one(
    workplace: Workplace, znodes: PoolZnodes, sshd: SshServer, check: bool, launchers: int
) -> None:
    """S-17: ready nodes go on hold, one in use does after its job; released, each slot is there once."""
    hosts = [StaticHost(f"127.6.0.{number}", port=sshd.port, check=check, slots=2) for number in (1, 2)]
    provider = StaticProvider(hosts)
    for _ in range(launchers):
        workplace.launch(provider)
    request = znodes.submit(["small"])
    (busy_id,) = znodes.fulfilled(request)["nodes"]
    host = (znodes.node(busy_id) or {})["hostname"]
    other = next(each.name for each in hosts if each.name != host)
    name = f"zuul@{host}:{sshd.port}"
    quarantine(znodes, name)
    wait_for("the other slot is on hold", lambda: sorted(states(znodes, host)) == [("hold", WHY), ("ready", None)])
    assert znodes.node(busy_id) is not None
    znodes.change_node(busy_id, state="used")
    wait_for("both slots are on hold", lambda: states(znodes, host) == [("hold", WHY)] * 2)
    assert znodes.node(busy_id) is None
    served = znodes.submit(["small", "small"])
    znodes.fulfilled(served)
    waiting = znodes.submit(["small"])
    assert states(znodes, other) == [("ready", None)] * 2
    release(znodes, name)
    znodes.fulfilled(waiting)
    for request_id in (request, served, waiting):
        for node_id in (znodes.request(request_id) or {})["nodes"]:
            if znodes.node(node_id) is not None:
                znodes.change_node(node_id, state="used")
        znodes.delete_request(request_id)
    workplace.wait_nodes(provider)


def test_a_host_that_fails_quarantines_itself(workplace: Workplace, znodes: PoolZnodes, tmp_path: Path) -> None:
    """S-16: for all launchers, with the reason; when the time is over it is checked, and comes back if it works."""
    server = SshServer(tmp_path / "sshd")
    server.start()
    try:
        host = StaticHost("127.6.0.1", port=server.port, check=True)
        provider = StaticProvider([host], settings={"quarantine-after": 2})
        first, second = (workplace.launch(provider) for _ in range(2))
        server.stop()
        request = znodes.submit(["small"])
        name = f"zuul@127.6.0.1:{server.port}"
        wait_for("the host is quarantined", lambda: znodes.read(path_of(name)) is not None)
        record = znodes.read(path_of(name)) or {}
        assert record["automatic"] is True
        assert record["reason"].startswith("2 failed checks in a row, the last one: ")
        assert znodes.nodes() == {}
        server.start()
        # As if its time were over.
        znodes.kazoo.set(path_of(name), json.dumps({**record, "until": wall_time()}).encode())
        znodes.fulfilled(request)
        assert len(znodes.nodes()) == 1
        assert any("is quarantined, and checked again in 60 s" in each.log_text() for each in (first, second))
    finally:
        server.stop()
