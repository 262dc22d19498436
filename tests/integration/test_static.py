# SPDX-License-Identifier: Apache-2.0
"""The static driver in running launchers: real ZooKeeper, real sshd (rules S)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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
    wait_for("the request is fulfilled", lambda: znodes.request_state(request) == "fulfilled")
    found = znodes.request(request) or {}
    nodes = [znodes.node(node_id) for node_id in found["nodes"]]
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
