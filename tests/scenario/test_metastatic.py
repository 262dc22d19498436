# SPDX-License-Identifier: Apache-2.0
"""The metastatic driver in a whole launcher, on nodes of the fake cloud and on static hosts (rules T)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from nodepool.driver.fake.cloud import FakeCloud
from tests.scenario.conftest import Launch
from tests.support.command_line import CommandLine
from tests.support.local_launcher import fake_provider
from tests.support.pool_znodes import PoolZnodes
from tests.support.session_loss import expire_session
from tests.support.sshd import SshServer
from tests.support.wait import wait_for
from tests.support.zk_reads import count_reads
from tests.support.zookeeper import ZooKeeperServer

OWNER = "NodePool:metastatic:shared"


def shared(*labels: dict[str, Any], **pool: Any) -> dict[str, Any]:
    """A metastatic provider section; each label is on two slots of label ``big`` unless it says otherwise."""
    rules = {"backing-label": "big", "max-parallel-jobs": 2, "grace-time": 0}
    return {
        "name": "shared",
        "driver": "metastatic",
        "pools": [{"name": "main", "labels": [{**rules, **label} for label in labels or [{"name": "small"}]], **pool}],
    }


def cloud_provider(cloud: FakeCloud, **settings: Any) -> dict[str, Any]:
    return fake_provider("cloud", ("big",), cloud=cloud.name, **settings)


def backing(znodes: PoolZnodes) -> dict[str, dict[str, Any]]:
    """Backing nodes by id, with what ``user_data`` holds in the place of its text."""
    found = {}
    for node_id, node in znodes.nodes("in-use").items():
        if isinstance(node["user_data"], str):
            found[node_id] = {**node, "user_data": json.loads(node["user_data"])}
    return found


def place(znodes: PoolZnodes, request: dict[str, Any]) -> tuple[str, int]:
    """Backing node and slot of the only node of a request."""
    data = (znodes.node(request["nodes"][0]) or {})["driver_data"]
    return data["backing_node"], data["slot"]


def nothing_left(znodes: PoolZnodes, cloud: FakeCloud) -> bool:
    return not znodes.nodes() and not cloud.instances() and not znodes.children("/nodepool/requests")


def nothing_used(znodes: PoolZnodes, cloud: FakeCloud) -> bool:
    """Is all that is there ready and free? A backing node may have come when nobody was left to claim it."""
    nodes = znodes.nodes()
    return nodes.keys() == znodes.free_nodes().keys() and len(nodes) == len(cloud.instances())


def test_two_share_a_backing_node(launch: Launch, znodes: PoolZnodes, cloud: FakeCloud) -> None:
    """T-1 to T-3, T-5, T-8: one machine for two nodes; it goes when both have gone."""
    pool = {"node-attributes": {"zone": "of the pool"}}
    launch([cloud_provider(cloud, boot_seconds=0.2), shared(**pool)])
    requests = [znodes.submit(["small"]) for _ in range(2)]
    places = {place(znodes, znodes.fulfilled(request_id)) for request_id in requests}
    ((backing_id, node),) = backing(znodes).items()
    assert places == {(backing_id, 0), (backing_id, 1)}
    assert node["allocated_to"].startswith("100-")
    assert node["requestor"] == OWNER
    data = node["user_data"]
    assert (data["owner"], data["label"], data["slots"], data["failed"]) == (OWNER, "small", 2, False)
    (lock,) = znodes.node_lockers(backing_id)
    value, stat = znodes.kazoo.get(f"/nodepool/nodes/{backing_id}/lock/{lock}")
    assert value.decode() == OWNER
    assert stat.ephemeralOwner == 0
    wait_for("the backing request is deleted", lambda: len(znodes.children("/nodepool/requests")) == 2)
    znodes.use_and_return(*requests)
    wait_for("nothing is left", lambda: nothing_left(znodes, cloud))


def test_restart_while_in_use(launch: Launch, znodes: PoolZnodes, cloud: FakeCloud) -> None:
    """T-6: the backing node survives the launcher, its slots are found again, and it is released in the end."""
    sections = [cloud_provider(cloud), shared()]
    first = launch(sections)
    before = znodes.submit(["small"])
    request = znodes.fulfilled(before)
    backing_id, slot = place(znodes, request)
    (node_id,) = request["nodes"]
    lock = znodes.kazoo.Lock(f"/nodepool/nodes/{node_id}/lock")
    lock.acquire()
    znodes.change_node(node_id, state="in-use")
    first.stop()
    launch(sections)
    after = znodes.submit(["small"])
    assert (slot, place(znodes, znodes.fulfilled(after))) == (0, (backing_id, 1))
    znodes.use_and_return(before)
    lock.release()
    znodes.use_and_return(after)
    wait_for("nothing is left", lambda: nothing_left(znodes, cloud))


def test_restart_while_waiting(launch: Launch, znodes: PoolZnodes, cloud: FakeCloud) -> None:
    """G-14: what a launcher requested goes with it; the next one serves the request, and nothing stays."""
    cloud.set(hang=True)
    first = launch([shared()], labels={"big": {}})
    other = launch([cloud_provider(cloud)], labels={"small": {}})
    request_id = znodes.submit(["small"])
    wait_for("the backing node is built", cloud.instances)
    first.stop()
    wait_for("only the client's request is left", lambda: znodes.children("/nodepool/requests") == [request_id])
    launch([shared()], labels={"big": {}})
    cloud.set(hang=False)
    znodes.fulfilled(request_id)
    znodes.use_and_return(request_id)

    wait_for("nothing is in use", lambda: nothing_used(znodes, cloud))
    assert other.nodepool.ready.is_set()


def test_session_loss(launch: Launch, znodes: PoolZnodes, cloud: FakeCloud, zookeeper: ZooKeeperServer) -> None:
    """L-9, T-4: while one node is in use and another one waits: the first stays, the second is served."""
    launcher = launch([cloud_provider(cloud), shared({"name": "small", "max-parallel-jobs": 1})])
    used = znodes.submit(["small"])
    backing_id, _ = place(znodes, znodes.fulfilled(used))
    cloud.set(hang=True)
    waiting = znodes.submit(["small"])
    wait_for("its backing node is built", lambda: len(cloud.instances()) == 2)
    expire_session(zookeeper.plain_hosts(), launcher.nodepool.client.kazoo.client_id)
    wait_for("the session was lost", lambda: launcher.nodepool.client.session_epoch > 0)
    cloud.set(hang=False)
    assert place(znodes, znodes.fulfilled(waiting))[0] != backing_id
    assert backing_id in backing(znodes)
    znodes.use_and_return(used, waiting)
    wait_for("nothing is in use", lambda: not backing(znodes))
    wait_for("no backing request is left", lambda: not znodes.children("/nodepool/requests"))


def test_label_removed(launch: Launch, znodes: PoolZnodes, cloud: FakeCloud) -> None:
    """T-10, G-5: backing nodes of a label that is removed go as soon as they are empty, the others do not."""
    rules = {"grace-time": 10_000}
    sections = [cloud_provider(cloud), shared({"name": "small", **rules}, {"name": "tiny", **rules})]
    launcher = launch(sections)
    empty, used, other = (znodes.submit([label]) for label in ("small", "small", "tiny"))
    places = [place(znodes, znodes.fulfilled(request_id))[0] for request_id in (empty, used, other)]
    assert places[0] == places[1] != places[2]
    znodes.use_and_return(empty, other)
    launcher.write({**launcher.settings, "providers": [sections[0], shared({"name": "tiny", **rules})]})
    wait_for("the label is gone", lambda: all("small" not in pool["supported_labels"] for pool in znodes.pools()))
    assert set(backing(znodes)) == {places[0], places[2]}
    znodes.use_and_return(used)
    wait_for("its backing node is released", lambda: set(backing(znodes)) == {places[2]})
    wait_for("and deleted", lambda: len(cloud.instances()) == 1)


@pytest.mark.parametrize("pools", [[], [{"name": "main", "labels": []}]], ids=["no-pool", "no-label"])
def test_out_of_service(launch: Launch, znodes: PoolZnodes, cloud: FakeCloud, pools: list[dict[str, Any]]) -> None:
    """T-10: as the documentation says, before a provider is removed."""
    launcher = launch([cloud_provider(cloud), shared({"name": "small", "grace-time": 10_000})])
    requests = [znodes.submit(["small"]) for _ in range(3)]
    znodes.fulfilled(*requests)
    assert len(backing(znodes)) == 2
    znodes.use_and_return(requests[0])
    launcher.settings["providers"][1]["pools"] = pools
    launcher.write(launcher.settings)
    znodes.use_and_return(*requests[1:])
    wait_for("nothing is left", lambda: nothing_left(znodes, cloud))


def test_provider_removed(launch: Launch, znodes: PoolZnodes, cloud: FakeCloud) -> None:
    """G-6: nobody looks after its nodes any more, backing nodes included, until it is erased."""
    launcher = launch([cloud_provider(cloud), shared()])
    request_id = znodes.submit(["small"])
    backing_id, _ = place(znodes, znodes.fulfilled(request_id))
    launcher.write({**launcher.settings, "providers": launcher.settings["providers"][:1]})
    wait_for("the provider is gone", lambda: "shared" not in launcher.nodepool.providers.running)
    znodes.use_and_return(request_id)
    told = CommandLine(launcher.path)("erase", "shared", "--force")
    assert told.status == 0, told.err
    assert told.out.endswith(f"Giving back node {backing_id} of provider cloud, on which nodes of shared were...\n")
    wait_for("nothing is left", lambda: nothing_left(znodes, cloud))


def test_reload_while_waiting(launch: Launch, znodes: PoolZnodes, cloud: FakeCloud) -> None:
    """L-17: a launch that waits for a backing node survives the replacement of its provider."""
    cloud.set(hang=True)
    launcher = launch([cloud_provider(cloud), shared()])
    request_id = znodes.submit(["small"])
    wait_for("the backing node is built", cloud.instances)
    old = launcher.nodepool.providers.running["shared"]
    launcher.settings["providers"][1]["pools"][0]["max-servers"] = 7
    launcher.write(launcher.settings)
    wait_for("the provider was replaced", lambda: launcher.nodepool.providers.running["shared"] is not old)
    cloud.set(hang=False)
    _, slot = place(znodes, znodes.fulfilled(request_id))
    other = znodes.submit(["small"])
    assert {slot, place(znodes, znodes.fulfilled(other))[1]} == {0, 1}
    assert cloud.calls["create"] == 1
    znodes.use_and_return(request_id, other)
    wait_for("nothing is left", lambda: nothing_left(znodes, cloud))


def test_max_servers(launch: Launch, znodes: PoolZnodes, cloud: FakeCloud) -> None:
    """10: max-servers counts requested nodes; one more waits, and gets the slot that becomes free."""
    launch([cloud_provider(cloud), shared(**{"max-servers": 2})])
    requests = [znodes.submit(["small"]) for _ in range(3)]
    znodes.fulfilled(*requests[:2])
    wait_for(
        "the pool is paused", lambda: [p["paused"] for p in znodes.pools() if p["provider_name"] == "shared"] == [True]
    )
    znodes.use_and_return(requests[0])
    znodes.fulfilled(requests[2])
    assert cloud.calls["create"] == 1


def test_min_ready(launch: Launch, znodes: PoolZnodes, cloud: FakeCloud) -> None:
    """M-1: ready nodes on slots."""
    launch([cloud_provider(cloud), shared()], labels={"small": {"min-ready": 2}})
    wait_for("two are ready", lambda: len(znodes.free_nodes()) == 2)
    request_id = znodes.submit(["small"])
    znodes.fulfilled(request_id)
    wait_for("another one is ready", lambda: len(znodes.free_nodes()) == 2)
    assert len(cloud.instances()) == len(backing(znodes)) == 2


def test_nobody_has_the_backing_label(launch: Launch, znodes: PoolZnodes) -> None:
    """T-4, L-6: the request fails, and no backing request is left."""
    launch([{**shared(), "launch-retries": 1}], labels={"big": {}})
    request_id = znodes.submit(["small"])
    wait_for("it fails", lambda: znodes.request_state(request_id) == "failed")
    wait_for("nothing is left", lambda: not znodes.nodes() and znodes.children("/nodepool/requests") == [request_id])


def test_key_scan(launch: Launch, znodes: PoolZnodes, sshd: SshServer) -> None:
    """T-11, K-1: checked with each hand-out; where nobody answers, the backing node is marked and released."""
    port = sshd.port
    hosts = [{"name": "127.4.1.1", "labels": ["big"], "connection-port": 1, "host-key-checking": False}]
    lab = {"name": "lab", "driver": "static", "pools": [{"name": "main", "nodes": hosts}]}
    launcher = launch([lab, {**shared(**{"host-key-checking": True}), "boot-timeout": 1, "launch-retries": 20}])
    wait_for("the host is there", lambda: len(znodes.free_nodes()) == 1)
    request_id = znodes.submit(["small"])
    wait_for("it is marked", lambda: any(node["user_data"]["failed"] for node in backing(znodes).values()))
    hosts.append({"name": "127.4.1.2", "labels": ["big"], "connection-port": port, "host-key-checking": False})
    launcher.settings["providers"][0] = lab
    launcher.write(launcher.settings)
    request = znodes.fulfilled(request_id)
    node = znodes.node(request["nodes"][0]) or {}
    assert node["interface_ip"] == "127.4.1.2"
    assert sorted(node["host_keys"]) == sorted(sshd.host_keys)
    znodes.use_and_return(request_id)
    wait_for("both hosts are free again", lambda: len(znodes.free_nodes()) == len(znodes.nodes()) == 2)


def test_cost(launch: Launch, znodes: PoolZnodes, cloud: FakeCloud, monkeypatch: pytest.MonkeyPatch) -> None:
    """500 slots handed out and returned: the cost follows what changes, not what is there."""
    rules = {"name": "small", "max-parallel-jobs": 10, "grace-time": 10_000}
    launcher = launch([cloud_provider(cloud), shared(rules)])
    full = [znodes.submit(["small"] * 50) for _ in range(10)]
    znodes.fulfilled(*full)
    assert len(backing(znodes)) == 50

    def count() -> int:
        found = [node for node in znodes.nodes().values() if node["provider"] == "shared"]
        return len(found)

    znodes.use_and_return(full[0])
    wait_for("it has room", lambda: count() == 450)
    reads = count_reads(launcher.nodepool.client, monkeypatch)
    one = znodes.submit(["small"])
    znodes.fulfilled(one)
    znodes.use_and_return(one)
    wait_for("it is gone", lambda: count() == 450)
    assert len(reads) <= 20, reads
