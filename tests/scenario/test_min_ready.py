# SPDX-License-Identifier: Apache-2.0
"""Nodes that are kept ready (rules M)."""

from __future__ import annotations

import pytest

from nodepool.driver.fake.cloud import FakeCloud
from nodepool.launcher import status
from tests.scenario.conftest import Launch
from tests.scenario.test_requests import fulfilled, use_and_return
from tests.support.command_line import CommandLine
from tests.support.local_launcher import fake_provider
from tests.support.pool_znodes import PoolZnodes
from tests.support.wait import wait_for


def test_kept_ready(launch: Launch, znodes: PoolZnodes, cloud_name: str, cloud: FakeCloud) -> None:
    """M-1, M-2, M-4: as many as wanted, free for everybody; what is taken is replaced; no request is left."""
    launch([fake_provider("one", cloud=cloud_name)], labels={"small": {"min-ready": 2}})
    wait_for("two are ready", lambda: len(znodes.free_nodes()) == 2)
    wait_for("no request is left", lambda: not znodes.children("/nodepool/requests"))
    before = set(znodes.nodes())
    request_id = znodes.submit(["small"])
    assert set(fulfilled(znodes, request_id)["nodes"]) <= before
    wait_for("the taken one is replaced", lambda: len(znodes.free_nodes()) == 2)
    use_and_return(znodes, request_id)
    wait_for("two are left", lambda: len(znodes.nodes()) == len(znodes.free_nodes()) == 2)


def test_two_launchers_do_not_overshoot(launch: Launch, znodes: PoolZnodes, cloud_name: str, cloud: FakeCloud) -> None:
    """M-6: together they make what is missing, no more."""
    for _ in range(2):
        launch([fake_provider("one", cloud=cloud_name)], labels={"small": {"min-ready": 5}})
    wait_for("five are ready", lambda: len(znodes.free_nodes()) == 5)
    assert cloud.peak == 5


def test_no_room(
    launch: Launch, znodes: PoolZnodes, cloud_name: str, cloud: FakeCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Q-7, M-7, M-8: at quota they neither pause the pool nor push anybody out: they wait, and that is no failure."""
    monkeypatch.setattr(status, "LOOK_SECONDS", 0.1)
    launcher = launch(
        [fake_provider("one", cloud=cloud_name, pool_max_servers=2), fake_provider("lab", ("other",))],
        labels={"small": {"min-ready": 5}},
    )
    nodepool = CommandLine(launcher.path)
    wait_for("two are ready", lambda: len(znodes.free_nodes()) == 2)
    cause = "min-ready: 3 more ready nodes wait in one/main: quota: 2 of 2 instances of pool main in use."
    wait_for("the full pool is the cause", lambda: cause in nodepool("explain", "small").out)
    assert {pool["paused"] for pool in znodes.pools()} == {False}
    assert "(0 wait now)" in nodepool("status").out, "no job waits"
    fulfilled(znodes, znodes.submit(["small"]))
    assert [event for event in launcher.nodepool.events.last(100) if event.what == "failed"] == []
    # Those that were served are deleted in their own time.
    wait_for("the others wait", lambda: {znodes.request_state(name) for name in _fillers(znodes)} == {"requested"})
    launcher.settings["labels"] = [
        {**label, "min-ready": 1} if label["name"] == "small" else label for label in launcher.settings["labels"]
    ]
    launcher.write(launcher.settings)
    wait_for("what is not missing any more is withdrawn", lambda: not _fillers(znodes))


def _fillers(znodes: PoolZnodes) -> list[str]:
    return [request_id for request_id in znodes.children("/nodepool/requests") if request_id.startswith("900-")]


def test_wedge_relief(launch: Launch, znodes: PoolZnodes, cloud_name: str, cloud: FakeCloud) -> None:
    """Q-8: an unused ready node of another label makes room for a request that waits."""
    launch(
        [fake_provider("one", ("idle", "wanted"), cloud=cloud_name, pool_max_servers=1)],
        labels={"idle": {"min-ready": 1}},
    )
    wait_for("one is ready", lambda: len(znodes.free_nodes()) == 1)
    fulfilled(znodes, znodes.submit(["wanted"]))
    assert cloud.peak == 1


def test_failure(launch: Launch, znodes: PoolZnodes, cloud_name: str, cloud: FakeCloud) -> None:
    """M-4, OV-4: why there is no node is an event of the label."""
    cloud.set(fail_launches=1000)
    launcher = launch(
        [fake_provider("one", cloud=cloud_name, launch_retries=1)], labels={"small": {"min-ready": 1}}
    ).nodepool

    def told() -> list[str]:
        return [event.text for event in launcher.events.last(100) if event.subject == "label small"]

    wait_for("the label tells of it", told)
    assert told()[0].startswith("no more ready node of small: every pool declined it")
