# SPDX-License-Identifier: Apache-2.0
"""Drivers on the state-machine framework in a whole launcher: threads, limits, images, names of loggers."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from nodepool.driver.fake.cloud import FakeCloud
from nodepool.driver.registry import Drivers
from nodepool.driver.statemachine import StateMachine, StateMachineProvider
from nodepool.launcher import deletion
from nodepool.metrics import reports
from nodepool.zk import caches
from tests.scenario.conftest import Launch
from tests.support.local_launcher import LocalLauncher, fake_provider
from tests.support.machine_driver import DIRECTORY, MachineAdapter
from tests.support.pool_znodes import PoolZnodes
from tests.support.statsd_server import StatsdServer
from tests.support.wait import wait_for


@pytest.fixture(autouse=True)
def _driver() -> Iterator[None]:
    """Launchers find ``driver: machines``."""
    Drivers.load([str(DIRECTORY)])
    yield
    Drivers.load([])


def machines(cloud: FakeCloud, *labels: dict[str, Any], **settings: Any) -> dict[str, Any]:
    """A provider section with one pool."""
    section = fake_provider("one", cloud=cloud.name, **settings)
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


def test_burst(launch: Launch, znodes: PoolZnodes, cloud: FakeCloud) -> None:
    """A hundred launches at once need a handful of threads."""
    launcher = launch([machines(cloud, **{"boot-seconds": 0.3})])
    requests = [znodes.submit(["small"]) for _ in range(100)]
    znodes.fulfilled(*requests)
    assert len(adapter_of(launcher).threads) <= MachineAdapter.advance_threads
    znodes.use_and_return(*requests)
    wait_for("nothing is left", lambda: nothing_left(znodes, cloud))


def test_two_launchers_keep_the_limit(launch: Launch, znodes: PoolZnodes, cloud: FakeCloud) -> None:
    """Q-2: ``max-servers`` holds although two launchers serve the same pool at the same time."""
    sections = [machines(cloud, **{"boot-seconds": 0.05, "pool_max-servers": 4})]
    for _ in range(2):
        launch(sections)
    open_requests = [znodes.submit(["small"]) for _ in range(24)]
    while open_requests:
        done = wait_for(
            "a request is fulfilled", lambda: [i for i in open_requests if znodes.request_state(i) == "fulfilled"]
        )
        for request_id in done:
            znodes.use_and_return(request_id)
            open_requests.remove(request_id)
    assert cloud.peak <= 4
    wait_for("nothing is left", lambda: nothing_left(znodes, cloud))


def test_slow_calls_do_not_delay_others(launch: Launch, znodes: PoolZnodes, cloud: FakeCloud) -> None:
    """One call that blocks holds up its own node only."""
    launcher = launch([machines(cloud, {"name": "small"}, {"name": "slow"})])
    release = threading.Event()

    def block(machine: StateMachine) -> None:
        arguments = getattr(machine, "_arguments", None)
        if arguments is not None and arguments[1].name == "slow":
            release.wait(60)

    adapter_of(launcher).hooks.append(block)
    slow = znodes.submit(["slow"])
    wait_for("it is launched", lambda: znodes.nodes("building"))
    for _ in range(3):
        znodes.fulfilled(znodes.submit(["small"]))
    assert znodes.request_state(slow) == "pending"
    release.set()
    znodes.fulfilled(slow)


UPLOAD = caches.upload("debian", "b1", "one", "0000000001")


def test_label_follows_uploads(launch: Launch, znodes: PoolZnodes, cloud: FakeCloud) -> None:
    """A-13, M-3: min-ready nodes come with the upload; without it requests fail; with another one they do not."""
    label = {"name": "small", "diskimage": "debian"}
    launcher = launch([machines(cloud, label)], {"small": {"min-ready": 1}}, diskimages=[{"name": "debian"}])
    request_id = znodes.submit(["small"])
    wait_for("it is declined", lambda: (znodes.request(request_id) or {}).get("state") == "failed")
    assert znodes.nodes() == {}
    ready = {"state": "ready", "state_time": 5.0, "external_id": "image-1"}
    znodes.kazoo.create(caches.build("debian", "b1"), json.dumps(ready).encode(), makepath=True)
    znodes.kazoo.create(UPLOAD, json.dumps(ready).encode(), makepath=True)
    wait_for("a node is kept ready", lambda: znodes.free_nodes())
    (node,) = znodes.fulfilled(znodes.submit(["small"]))["nodes"]
    assert (znodes.node(node) or {})["image_id"] == UPLOAD
    znodes.kazoo.set(UPLOAD, json.dumps({**ready, "state": "deleting"}).encode())
    images = launcher.nodepool.cache.images
    wait_for("the launcher knows", lambda: images.snapshot().image("debian").current_upload("one") is None)
    after = znodes.submit(["small", "small", "small"])
    wait_for("it is declined", lambda: (znodes.request(after) or {}).get("state") == "failed")


#: The loggers that operators filter on (reference/commands 7), word by word; the code has them from
#: `nodepool.log_names`. Not here: nodepool.stack_dump, which has tests with SIGUSR2, and what is of other daemons.
CONTRACT = {
    "nodepool.NodePool",
    "nodepool.PoolWorker.one-main",
    "nodepool.CleanupWorker",
    "nodepool.DeletedNodeWorker",
    "nodepool.StatsWorker",
    "nodepool.StateMachineProvider.one",
    "nodepool.StateMachineNodeLauncher.one",
    "nodepool.StateMachineNodeDeleter.one",
    "nodepool.zk.ZooKeeper",
}


def test_names(
    statsd: StatsdServer,
    launch: Launch,
    znodes: PoolZnodes,
    cloud: FakeCloud,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A node is launched, used and deleted; an image is missing, a request is lost, a metric is broken."""
    caplog.set_level(logging.DEBUG, "nodepool")
    monkeypatch.setattr(deletion, "SWEEP_SECONDS", 0.2)
    monkeypatch.setattr(reports, "node_gauges", lambda *_: 1 / 0)
    sections = [machines(cloud, {"name": "small"}, {"name": "imaged", "diskimage": "debian"})]
    launch(sections, {"small": {}, "imaged": {}}, diskimages=[{"name": "debian"}])
    pool_id = znodes.pools()[0]["id"]

    request_id = znodes.submit(["small"])
    znodes.fulfilled(request_id)
    znodes.use_and_return(request_id)
    wait_for("nothing is left", lambda: nothing_left(znodes, cloud))
    znodes.submit(["imaged"])
    lost = znodes.submit(["nobody-has-it"])
    znodes.change_request(lost, state="pending")
    expected = CONTRACT | {f"nodepool.driver.NodeRequestHandler[{pool_id}]"}
    wait_for("all have said something", lambda: expected <= {record.name for record in caplog.records})
