# SPDX-License-Identifier: Apache-2.0
"""Drivers on the state-machine framework in a whole launcher (rules L, K, Q, D, X, F)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from nodepool.driver.fake.cloud import FakeCloud
from nodepool.driver.registry import Drivers
from nodepool.driver.statemachine import StateMachine, StateMachineProvider
from tests.scenario.conftest import Launch
from tests.scenario.test_requests import fulfilled, use_and_return
from tests.support.local_launcher import LocalLauncher, fake_provider
from tests.support.machine_driver import DIRECTORY, MachineAdapter
from tests.support.pool_znodes import PoolZnodes
from tests.support.sshd import SshServer
from tests.support.wait import wait_for


@pytest.fixture(autouse=True)
def _driver() -> Iterator[None]:
    """Launchers find ``driver: machines``."""
    Drivers.load([str(DIRECTORY)])
    yield
    Drivers.load([])


def machines(cloud: str, *labels: dict[str, Any], **settings: Any) -> dict[str, Any]:
    """A provider section with one pool."""
    section = fake_provider("one", cloud=cloud, **settings)
    section["driver"] = "machines"
    section["pools"][0]["labels"] = list(labels) or [{"name": "small"}]
    return section


def adapter_of(launcher: LocalLauncher, name: str = "one") -> MachineAdapter:
    provider = launcher.nodepool.providers.running[name]
    assert isinstance(provider, StateMachineProvider)
    # Loaded by path: the class is another one, of the same text.
    adapter: Any = provider.adapter
    return adapter  # type: ignore[no-any-return]


def nothing_left(znodes: PoolZnodes, cloud: FakeCloud) -> bool:
    return not znodes.nodes() and not cloud.instances()


def test_launch_use_and_delete(launch: Launch, znodes: PoolZnodes, cloud: FakeCloud, cloud_name: str) -> None:
    """L-12, X-3: several nodes in the order of the labels; used and gone."""
    launch([machines(cloud_name, {"name": "small"}, {"name": "big", "cores": 8}, **{"boot-seconds": 0.2})])
    request_id = znodes.submit(["big", "small", "big"])
    request = fulfilled(znodes, request_id)
    nodes = [znodes.node(node_id) for node_id in request["nodes"]]
    assert [node and node["type"] for node in nodes] == [["big"], ["small"], ["big"]]
    use_and_return(znodes, request_id)
    wait_for("nothing is left", lambda: nothing_left(znodes, cloud))


def test_key_scan(launch: Launch, znodes: PoolZnodes, cloud: FakeCloud, cloud_name: str, sshd: SshServer) -> None:
    """K-1, K-2, K-6: keys of a real sshd end up in the node."""
    label = {"name": "small", "host-key-checking": True, "connection-port": sshd.port}
    launch([machines(cloud_name, label)])
    requests = [znodes.submit(["small"]) for _ in range(10)]
    for request_id in requests:
        (node_id,) = fulfilled(znodes, request_id)["nodes"]
        node = znodes.node(node_id)
        assert node is not None
        assert sorted(node["host_keys"]) == sorted(sshd.host_keys)


def test_burst(launch: Launch, znodes: PoolZnodes, cloud: FakeCloud, cloud_name: str) -> None:
    """A hundred launches at once need a handful of threads."""
    launcher = launch([machines(cloud_name, **{"boot-seconds": 0.3})])
    requests = [znodes.submit(["small"]) for _ in range(100)]
    for request_id in requests:
        fulfilled(znodes, request_id)
    assert len(adapter_of(launcher).threads) <= MachineAdapter.advance_threads
    for request_id in requests:
        use_and_return(znodes, request_id)
    wait_for("nothing is left", lambda: nothing_left(znodes, cloud))


def test_two_launchers_keep_the_limit(launch: Launch, znodes: PoolZnodes, cloud: FakeCloud, cloud_name: str) -> None:
    """Q-2: ``max-servers`` holds although two launchers serve the same pool at the same time."""
    sections = [machines(cloud_name, **{"boot-seconds": 0.05, "pool_max-servers": 4})]
    for _ in range(2):
        launch(sections)
    open_requests = [znodes.submit(["small"]) for _ in range(24)]
    while open_requests:
        done = wait_for(
            "a request is fulfilled", lambda: [i for i in open_requests if znodes.request_state(i) == "fulfilled"]
        )
        for request_id in done:
            use_and_return(znodes, request_id)
            open_requests.remove(request_id)
    assert cloud.peak <= 4
    wait_for("nothing is left", lambda: nothing_left(znodes, cloud))


def test_restart_in_mid_launch(launch: Launch, znodes: PoolZnodes, cloud: FakeCloud, cloud_name: str) -> None:
    """F-1, G-14, L-3: what a launcher left is deleted, with or without external_id, and the request is served."""
    first = launch([machines(cloud_name, hang=True)])
    request_id = znodes.submit(["small"])
    wait_for("the instance is known", lambda: [n for n in znodes.nodes("building").values() if n["external_id"]])
    first.stop()
    (node_id,) = znodes.nodes()
    znodes.change_node(node_id, external_id=None)
    cloud.set(hang=False)
    launch([machines(cloud_name, hang=False)])
    request = fulfilled(znodes, request_id)
    assert request["nodes"] != [node_id]
    wait_for("only the new instance is left", lambda: len(cloud.instances()) == 1 and list(znodes.nodes()) != [node_id])


def test_cloud_goes_away(launch: Launch, znodes: PoolZnodes, cloud: FakeCloud, cloud_name: str) -> None:
    """F-5: while the API is down nothing is declined; the pool waits, and goes on when it is back."""
    launcher = launch([machines(cloud_name, **{"boot-seconds": 0.05})])
    fulfilled(znodes, znodes.submit(["small"]))
    cloud.set(down=True)
    request_id = znodes.submit(["small"])
    adapter_of(launcher)
    provider: Any = launcher.nodepool.providers.running["one"]
    wait_for("the circuit breaker opens", lambda: provider.calls.circuit_open)
    wait_for("the pool says so", lambda: [pool["paused"] for pool in znodes.pools()] == [True])
    cloud.set(down=False)
    request = fulfilled(znodes, request_id)
    assert request["declined_by"] == []
    wait_for("the pool goes on", lambda: [pool["paused"] for pool in znodes.pools()] == [False])
    wait_for("no instance is left over", lambda: len(cloud.instances()) == len(znodes.nodes()) == 2)


def test_requests_go_to_others_during_a_rest(
    launch: Launch, znodes: PoolZnodes, cloud: FakeCloud, cloud_name: str
) -> None:
    """A provider whose cloud does not answer gives its requests back; a pool with a worse priority takes them."""
    other = fake_provider("other", cloud=f"{cloud_name}-other", priority=200)
    launcher = launch([machines(cloud_name), other])
    provider: Any = launcher.nodepool.providers.running["one"]
    wait_for("limits are known", lambda: provider.estimatedNodepoolQuota())
    cloud.set(down=True)
    request = fulfilled(znodes, znodes.submit(["small"]))
    assert request["declined_by"] == []
    node = znodes.node(request["nodes"][0])
    assert node is not None
    assert node["provider"] == "other"
    cloud.set(down=False)
    FakeCloud.forget(f"{cloud_name}-other")


def test_reload_in_mid_launch(launch: Launch, znodes: PoolZnodes, cloud: FakeCloud, cloud_name: str) -> None:
    """G-5, L-17: a launch survives the replacement of its provider."""
    launcher = launch([machines(cloud_name, hang=True)])
    old = adapter_of(launcher)
    request_id = znodes.submit(["small"])
    wait_for("the instance is there", cloud.instances)
    launcher.write({**launcher.settings, "providers": [machines(cloud_name, hang=True, **{"boot-timeout": 61})]})
    wait_for("the provider was replaced", lambda: adapter_of(launcher) is not old)
    assert not old.stopped.is_set()
    cloud.set(hang=False)
    fulfilled(znodes, request_id)
    wait_for("the old provider has ended", old.stopped.is_set)
    assert cloud.calls["create"] == 1


def test_slow_calls_do_not_delay_others(launch: Launch, znodes: PoolZnodes, cloud: FakeCloud, cloud_name: str) -> None:
    """One call that blocks holds up its own node only."""
    import threading

    launcher = launch([machines(cloud_name, {"name": "small"}, {"name": "slow"})])
    release = threading.Event()

    def block(machine: StateMachine) -> None:
        arguments = getattr(machine, "_arguments", None)
        if arguments is not None and arguments[1].name == "slow":
            release.wait(60)

    adapter_of(launcher).hooks.append(block)
    slow = znodes.submit(["slow"])
    wait_for("it is launched", lambda: znodes.nodes("building"))
    for _ in range(3):
        fulfilled(znodes, znodes.submit(["small"]))
    assert znodes.request_state(slow) == "pending"
    release.set()
    fulfilled(znodes, slow)
