# SPDX-License-Identifier: Apache-2.0
"""Configuration changes while the launcher runs (behaviour.md G)."""

from __future__ import annotations

import logging

import pytest

from nodepool.driver.fake.cloud import FakeCloud
from tests.scenario.conftest import Launch
from tests.scenario.test_requests import fulfilled
from tests.support.local_launcher import fake_provider
from tests.support.pool_znodes import PoolZnodes
from tests.support.wait import wait_for


def test_only_what_changed(launch: Launch, znodes: PoolZnodes, cloud_name: str, cloud: FakeCloud) -> None:
    """G-4, G-5, G-7, G-12: an unchanged provider keeps its object and pool id, a new label appears."""
    launcher = launch([fake_provider("one", cloud=cloud_name), fake_provider("two", cloud=cloud_name)])
    before = dict(launcher.nodepool.providers())
    ids = {pool["provider_name"]: pool["id"] for pool in znodes.pools()}
    settings = launcher.settings
    settings["labels"].append({"name": "new"})
    settings["providers"][1]["pools"][0]["labels"].append({"name": "new"})
    launcher.write(settings)
    wait_for("the label is there", lambda: any("new" in pool["supported_labels"] for pool in znodes.pools()))
    fulfilled(znodes, znodes.submit(["new"]))
    after = launcher.nodepool.providers()
    assert after["one"] is before["one"]
    assert after["two"] is not before["two"]
    assert {pool["provider_name"]: pool["id"] for pool in znodes.pools()} == ids


def test_pools_come_and_go(launch: Launch, znodes: PoolZnodes, cloud_name: str, cloud: FakeCloud) -> None:
    """G-6, G-7: pools are registered and unregistered; nodes of a provider that goes stay untouched."""
    launcher = launch([fake_provider("one", cloud=cloud_name), fake_provider("two", cloud=cloud_name)])
    nodes = fulfilled(znodes, znodes.submit(["small"], provider="two"))["nodes"]
    settings = launcher.settings
    gone = settings["providers"].pop(1)
    launcher.write(settings)
    wait_for("one pool is left", lambda: [pool["provider_name"] for pool in znodes.pools()] == ["one"])
    znodes.change_node(nodes[0], state="used")
    fulfilled(znodes, znodes.submit(["small"]))
    assert znodes.node(nodes[0]) is not None
    settings["providers"].append(gone)
    launcher.write(settings)
    wait_for("its used node is deleted now", lambda: znodes.node(nodes[0]) is None)


def test_broken_edit(
    launch: Launch, znodes: PoolZnodes, cloud_name: str, cloud: FakeCloud, caplog: pytest.LogCaptureFixture
) -> None:
    """G-8: a file that cannot be loaded changes nothing; a good one is taken."""
    launcher = launch([fake_provider("one", cloud=cloud_name)])
    with caplog.at_level(logging.ERROR, "nodepool.NodePool"):
        launcher.path.write_text("labels: [{name: small\n", encoding="utf-8")
        wait_for("it is refused", lambda: "refused" in caplog.text)
    fulfilled(znodes, znodes.submit(["small"]))
    settings = launcher.settings
    settings["labels"].append({"name": "late"})
    settings["providers"][0]["pools"][0]["labels"].append({"name": "late"})
    launcher.write(settings)
    wait_for("the label is there", lambda: any("late" in pool["supported_labels"] for pool in znodes.pools()))
    fulfilled(znodes, znodes.submit(["late"]))


def test_broken_provider(
    launch: Launch,
    znodes: PoolZnodes,
    cloud_name: str,
    cloud: FakeCloud,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """G-9, G-10: others serve, requests only it could serve fail; it is tried again until it works."""
    from nodepool.driver.fake.provider import FakeProvider
    from nodepool.launcher import providers

    monkeypatch.setattr(providers, "FIRST_RETRY_SECONDS", 0.2)
    start = FakeProvider.start
    broken = {"two"}

    def flaky(self: FakeProvider, zk_conn: object) -> None:
        if self.name in broken:
            raise RuntimeError("no way")
        start(self, zk_conn)  # type: ignore[arg-type]

    monkeypatch.setattr(FakeProvider, "start", flaky)
    launch([fake_provider("one", cloud=cloud_name), fake_provider("two", ("big",), cloud=cloud_name)])
    fulfilled(znodes, znodes.submit(["small"]))
    lonely = znodes.submit(["big"])
    wait_for("it fails", lambda: znodes.request_state(lonely) == "failed")
    broken.clear()
    wait_for("it is there now", lambda: len(znodes.pools()) == 2)
    fulfilled(znodes, znodes.submit(["big"]))
