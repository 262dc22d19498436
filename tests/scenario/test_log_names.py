# SPDX-License-Identifier: Apache-2.0
"""The loggers that operators filter on (reference/commands 7), as a launcher at work uses them."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest

from nodepool.driver.fake.cloud import FakeCloud
from nodepool.driver.registry import Drivers
from nodepool.launcher import deletion
from nodepool.metrics import reports
from tests.scenario.conftest import Launch
from tests.scenario.test_requests import fulfilled, use_and_return
from tests.scenario.test_statemachine import machines, nothing_left
from tests.support.machine_driver import DIRECTORY
from tests.support.pool_znodes import REQUESTS, PoolZnodes
from tests.support.statsd_server import StatsdServer
from tests.support.wait import wait_for

#: From the contract, word by word; the code has them from `nodepool.log_names`. Not here: nodepool.stack_dump, which
#: has tests with SIGUSR2, and those of the builder and the web pages, which are not built.
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


@pytest.fixture(autouse=True)
def _driver() -> Iterator[None]:
    """Launchers find ``driver: machines``."""
    Drivers.load([str(DIRECTORY)])
    yield
    Drivers.load([])


def test_names(
    statsd: StatsdServer,
    launch: Launch,
    znodes: PoolZnodes,
    cloud: FakeCloud,
    cloud_name: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A node is launched, used and deleted; an image is missing, a request is lost, a metric is broken."""
    caplog.set_level(logging.DEBUG, "nodepool")
    monkeypatch.setattr(deletion, "SWEEP_SECONDS", 0.2)
    monkeypatch.setattr(reports, "node_gauges", lambda *_: 1 / 0)
    sections = [machines(cloud_name, {"name": "small"}, {"name": "imaged", "diskimage": "debian"})]
    launch(sections, {"small": {}, "imaged": {}}, diskimages=[{"name": "debian"}])
    pool_id = znodes.pools()[0]["id"]

    request_id = znodes.submit(["small"])
    fulfilled(znodes, request_id)
    use_and_return(znodes, request_id)
    wait_for("nothing is left", lambda: nothing_left(znodes, cloud))
    znodes.submit(["imaged"])
    lost = znodes.submit(["nobody-has-it"])
    znodes.kazoo.set(f"{REQUESTS}/{lost}", json.dumps({**(znodes.request(lost) or {}), "state": "pending"}).encode())

    expected = CONTRACT | {f"nodepool.driver.NodeRequestHandler[{pool_id}]"}
    wait_for("all have said something", lambda: expected <= {record.name for record in caplog.records})
