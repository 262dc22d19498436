# SPDX-License-Identifier: Apache-2.0
"""Static hosts that are taken out of service, in running launchers: real ZooKeeper, real sshd (S-16, S-17)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nodepool.clock import wall_time
from nodepool.model.status import Maintenance, Mode, znode_name
from nodepool.zk import paths
from tests.support.launcher_config import StaticHost, StaticProvider
from tests.support.pool_znodes import PoolZnodes
from tests.support.sshd import SshServer
from tests.support.wait import wait_for
from tests.support.workplace import Workplace

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
    wait_for("the request is fulfilled", lambda: znodes.request_state(request) == "fulfilled")
    (busy_id,) = (znodes.request(request) or {})["nodes"]
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
    wait_for("the other host serves", lambda: znodes.request_state(served) == "fulfilled")
    waiting = znodes.submit(["small"])
    assert states(znodes, other) == [("ready", None)] * 2
    release(znodes, name)
    wait_for("the host serves again", lambda: znodes.request_state(waiting) == "fulfilled")
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
        wait_for("the request is fulfilled", lambda: znodes.request_state(request) == "fulfilled")
        assert len(znodes.nodes()) == 1
        assert any("is quarantined, and checked again in 60 s" in each.log_text() for each in (first, second))
    finally:
        server.stop()
