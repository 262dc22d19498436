# SPDX-License-Identifier: Apache-2.0
"""The example driver in a whole launcher (rules L, K, Q, D, F), and a copy of it under another name.

It is found in a directory of drivers. `examples/driver` is a distribution; its own tests are there.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nodepool.driver.registry import Drivers
from nodepool.driver.statemachine import StateMachineProvider
from simulators.example_cloud import EXAMPLE_DRIVERS, ExampleCloud
from tests.scenario.conftest import Launch
from tests.support.local_launcher import LocalLauncher
from tests.support.pool_znodes import PoolZnodes
from tests.support.sshd import SshServer
from tests.support.wait import wait_for


@pytest.fixture
def cloud() -> Iterator[ExampleCloud]:
    Drivers.load([str(EXAMPLE_DRIVERS)])
    with ExampleCloud() as cloud:
        yield cloud
    Drivers.load()


def section(cloud: ExampleCloud, port: int | None = None, driver: str = "example") -> dict[str, Any]:
    """A provider section with one pool.

    :param port: of the sshd that the key scan meets; None = no key scan.
    """
    labels = [{"name": name, "cloud-image": "debian", "size": name} for name in ("small", "large")]
    return {
        "name": "somewhere",
        "driver": driver,
        "url": cloud.url,
        "rate": 0,
        "cloud-images": [{"name": "debian", "username": "debian", "connection-port": port or 22}],
        "pools": [{"name": "main", "labels": [{**label, "host-key-checking": port is not None} for label in labels]}],
    }


def provider_of(launcher: LocalLauncher) -> StateMachineProvider:
    provider = launcher.nodepool.providers.running["somewhere"]
    assert isinstance(provider, StateMachineProvider)
    return provider


def nothing_left(znodes: PoolZnodes, cloud: ExampleCloud) -> bool:
    return not znodes.nodes() and not cloud.machines.instances()


def test_request_with_key_scan(cloud: ExampleCloud, launch: Launch, znodes: PoolZnodes, sshd: SshServer) -> None:
    """L-12, K-1, X-3: two machines in one zone with the keys of a real sshd; used and gone."""
    cloud.machines.set(boot_seconds=0.2)
    launch([section(cloud, sshd.port)])
    request_id = znodes.submit(["large", "small"])
    nodes = [znodes.node(node_id) or {} for node_id in znodes.fulfilled(request_id)["nodes"]]
    assert [node["type"] for node in nodes] == [["large"], ["small"]]
    assert [node["username"] for node in nodes] == ["debian", "debian"]
    assert nodes[0]["az"] == nodes[1]["az"] is not None
    assert nodes[0]["resources"] == {"instances": 1, "cores": 8, "ram": 16384}
    assert all(sorted(node["host_keys"]) == sorted(sshd.host_keys) for node in nodes)
    znodes.use_and_return(request_id)
    wait_for("nothing is left", lambda: nothing_left(znodes, cloud))


def test_many_launches_share_one_list(cloud: ExampleCloud, launch: Launch, znodes: PoolZnodes) -> None:
    """However many machines boot, they are looked at with one call a second."""
    cloud.machines.set(boot_seconds=2.0)
    launch([section(cloud)])
    requests = [znodes.submit(["small"]) for _ in range(40)]
    znodes.fulfilled(*requests)
    assert cloud.machines.calls["create"] == 40
    assert cloud.machines.calls["list"] < 40
    znodes.use_and_return(*requests)
    wait_for("nothing is left", lambda: nothing_left(znodes, cloud))


def test_quota(cloud: ExampleCloud, launch: Launch, znodes: PoolZnodes) -> None:
    """Q-2, Q-4: the limits of the cloud hold, and so does what others use."""
    cloud.machines.set(limits={"instances": 2.0})
    cloud.machines.create("theirs", metadata={}, resources={"cores": 1, "ram": 1})
    launch([section(cloud)])
    first, second = (znodes.submit(["small"]) for _ in range(2))
    znodes.fulfilled(first)
    wait_for("the pool waits for room", lambda: [pool["paused"] for pool in znodes.pools()] == [True])
    assert znodes.request_state(second) == "pending"
    znodes.use_and_return(first)
    znodes.fulfilled(second)
    assert cloud.machines.peak == 2


def test_retry_and_lost_answer(cloud: ExampleCloud, launch: Launch, znodes: PoolZnodes) -> None:
    """L-4: a machine that fails is deleted before a retry; one whose creation gave no answer is not made twice."""
    cloud.machines.set(fail_launches=2, lost_answers=1)
    launch([section(cloud)])
    requests = [znodes.submit(["small"]) for _ in range(3)]
    for request_id in requests:
        assert znodes.fulfilled(request_id)["declined_by"] == []
    wait_for("no machine is left over", lambda: len(cloud.machines.instances()) == 3)
    assert cloud.machines.calls["create"] == 6
    assert cloud.machines.made == 5


def test_cloud_goes_away(cloud: ExampleCloud, launch: Launch, znodes: PoolZnodes) -> None:
    """F-5: while the API answers 503 nothing is declined; it goes on when the cloud is back."""
    launcher = launch([section(cloud)])
    znodes.fulfilled(znodes.submit(["small"]))
    cloud.machines.set(down=True)
    request_id = znodes.submit(["small"])
    wait_for("the circuit breaker opens", lambda: provider_of(launcher).calls.circuit_open)
    cloud.machines.set(down=False)
    assert znodes.fulfilled(request_id)["declined_by"] == []


def test_leaked_machine(cloud: ExampleCloud, launch: Launch, znodes: PoolZnodes) -> None:
    """D-2: a machine of ours without a node goes; those of others stay."""
    launcher = launch([section(cloud)])
    size = {"cores": 1, "ram": 1}
    tags = {"nodepool_provider_name": "somewhere", "nodepool_node_id": "0000004711"}
    cloud.machines.create("ours", metadata=tags, resources=size)
    cloud.machines.create("theirs", metadata={**tags, "nodepool_provider_name": "elsewhere"}, resources=size)

    def swept() -> bool:
        # A sweep of the launcher itself may run just now.
        provider_of(launcher).cleanupLeakedResources()
        return [machine.name for machine in cloud.machines.instances()] == ["theirs"]

    wait_for("it is deleted", swept)


def copy_of_the_example(directory: Path, name: str) -> None:
    """What the driver guide says: copy the directory, change the name."""
    copy = directory / name
    shutil.copytree(EXAMPLE_DRIVERS / "example", copy, ignore=shutil.ignore_patterns("__pycache__"))
    text = (copy / "__init__.py").read_text(encoding="utf-8")
    (copy / "__init__.py").write_text(text.replace('name = "example"', f'name = "{name}"'), encoding="utf-8")


#: As the guide of earlier releases had it.
SHORT = """
    def getCreateStateMachine(self, hostname, label, image_external_id, metadata, log):
        from nodepool.driver.statemachine import Order

        order = Order(hostname, label, image_external_id, metadata, None, None, log)
        return self.creation_class(self._machines, order)
"""


def shorten_signature(driver: Path) -> None:
    """Without ``request`` and ``az``."""
    with (driver / "adapter.py").open("a", encoding="utf-8") as file:
        file.write(SHORT)


@pytest.mark.parametrize("short", [False, True], ids=["long signature", "short signature"])
def test_copy_under_another_name(
    short: bool, cloud: ExampleCloud, launch: Launch, znodes: PoolZnodes, tmp_path: Path
) -> None:
    """reference/driver 0, 14: a copy in an extra directory serves requests, and uses nothing of the original."""
    copy_of_the_example(tmp_path / "drivers", "mycloud")
    if short:
        shorten_signature(tmp_path / "drivers" / "mycloud")
    Drivers.load([str(tmp_path / "drivers")])
    try:
        launcher = launch([section(cloud, driver="mycloud")])
        znodes.fulfilled(znodes.submit(["small"]))
        adapter = provider_of(launcher).adapter
        module = type(adapter).__module__
        assert module == "nodepool.driver.mycloud.adapter"
        used = {type(value).__module__ for value in vars(adapter).values()}
        assert used >= {module, "nodepool.driver.mycloud.client"}
        assert not [name for name in used if name.startswith("nodepool.driver.example")]
    finally:
        Drivers.load()
        for loaded in [name for name in sys.modules if name.startswith("nodepool.driver.mycloud")]:
            del sys.modules[loaded]
