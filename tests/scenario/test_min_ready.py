# SPDX-License-Identifier: Apache-2.0
"""Nodes that are kept ready (rules M)."""

from __future__ import annotations

from nodepool.driver.fake.cloud import FakeCloud
from tests.scenario.conftest import Launch
from tests.scenario.test_requests import fulfilled, use_and_return
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


def test_no_room(launch: Launch, znodes: PoolZnodes, cloud_name: str, cloud: FakeCloud) -> None:
    """Q-7, M-7: at quota they neither pause the pool nor push anybody out."""
    launch([fake_provider("one", cloud=cloud_name, pool_max_servers=2)], labels={"small": {"min-ready": 5}})
    wait_for("two are ready", lambda: len(znodes.free_nodes()) == 2)
    assert [pool["paused"] for pool in znodes.pools()] == [False]
    fulfilled(znodes, znodes.submit(["small"]))


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
