# SPDX-License-Identifier: Apache-2.0
"""Configuration changes while the launcher runs (rules G)."""

from __future__ import annotations

import logging

import pytest

from nodepool.driver.fake.cloud import FakeCloud
from nodepool.launcher.pool import intake
from nodepool.plan.retries import Backoff
from tests.scenario.conftest import Launch
from tests.support.command_line import CommandLine
from tests.support.local_launcher import LocalLauncher, fake_provider
from tests.support.pool_znodes import PoolZnodes
from tests.support.wait import wait_for


def add_label(launcher: LocalLauncher, provider: int, name: str, znodes: PoolZnodes) -> None:
    """Gives a provider one more label, and waits until it is registered."""
    launcher.settings["labels"].append({"name": name})
    launcher.settings["providers"][provider]["pools"][0]["labels"].append({"name": name})
    launcher.write(launcher.settings)
    wait_for("the label is there", lambda: any(name in pool["supported_labels"] for pool in znodes.pools()))


def test_only_what_changed(launch: Launch, znodes: PoolZnodes, cloud: FakeCloud) -> None:
    """G-4, G-5, G-7, G-12: an unchanged provider keeps its object and pool id, a new label appears."""
    launcher = launch([fake_provider("one", cloud=cloud.name), fake_provider("two", cloud=cloud.name)])
    wait_for("both pools are registered", lambda: len(znodes.pools()) == 2)
    before = dict(launcher.nodepool.providers.running)
    ids = {pool["provider_name"]: pool["id"] for pool in znodes.pools()}
    add_label(launcher, 1, "new", znodes)
    znodes.fulfilled(znodes.submit(["new"]))
    after = launcher.nodepool.providers.running
    assert after["one"] is before["one"]
    assert after["two"] is not before["two"]
    assert {pool["provider_name"]: pool["id"] for pool in znodes.pools()} == ids


def test_pools_come_and_go(launch: Launch, znodes: PoolZnodes, cloud: FakeCloud) -> None:
    """G-6, G-7: pools are registered and unregistered; nodes of a provider that goes stay untouched."""
    launcher = launch([fake_provider("one", cloud=cloud.name), fake_provider("two", cloud=cloud.name)])
    nodes = znodes.fulfilled(znodes.submit(["small"], provider="two"))["nodes"]
    gone = launcher.settings["providers"].pop(1)
    launcher.write(launcher.settings)
    wait_for("one pool is left", lambda: [pool["provider_name"] for pool in znodes.pools()] == ["one"])
    znodes.change_node(nodes[0], state="used")
    znodes.fulfilled(znodes.submit(["small"]))
    assert znodes.node(nodes[0]) is not None
    launcher.settings["providers"].append(gone)
    launcher.write(launcher.settings)
    wait_for("its used node is deleted now", lambda: znodes.node(nodes[0]) is None)


def test_broken_edit(launch: Launch, znodes: PoolZnodes, cloud: FakeCloud, caplog: pytest.LogCaptureFixture) -> None:
    """G-8: a file that cannot be loaded changes nothing; a good one is taken."""
    launcher = launch([fake_provider("one", cloud=cloud.name)])
    with caplog.at_level(logging.ERROR, "nodepool.NodePool"):
        launcher.path.write_text("labels: [{name: small\n", encoding="utf-8")
        wait_for("it is refused", lambda: "refused" in caplog.text)
    znodes.fulfilled(znodes.submit(["small"]))
    add_label(launcher, 0, "late", znodes)
    znodes.fulfilled(znodes.submit(["late"]))


def test_broken_section(launch: Launch, znodes: PoolZnodes, cloud: FakeCloud, caplog: pytest.LogCaptureFixture) -> None:
    """G-8: at start only that provider is absent; a reload that mends it brings it; one that breaks it, nothing."""
    one, two = fake_provider("one", cloud=cloud.name), fake_provider("two", ("big",), cloud=cloud.name)
    broken = {**two, "boot-seconds": "soon"}
    with caplog.at_level(logging.ERROR):
        launcher = launch([one, broken], {"small": {}, "big": {}})
    assert "launcher1.yaml:" in caplog.text
    assert "Provider two is not served" in caplog.text
    znodes.fulfilled(znodes.submit(["small"]))
    launcher.settings["providers"][1] = two
    launcher.write(launcher.settings)
    wait_for("it is there", lambda: {pool["provider_name"] for pool in znodes.pools()} == {"one", "two"})
    znodes.fulfilled(znodes.submit(["big"]))
    running = launcher.nodepool.providers.running["two"]

    launcher.settings["providers"][1] = broken
    launcher.write(launcher.settings)
    add_label(launcher, 0, "late", znodes)
    assert launcher.nodepool.providers.running["two"] is running
    assert "Provider two runs on with its old section" in caplog.text
    for label in ("late", "big"):
        znodes.fulfilled(znodes.submit([label]))


def test_file_of_nodepool_11(
    launch: Launch, znodes: PoolZnodes, cloud: FakeCloud, caplog: pytest.LogCaptureFixture
) -> None:
    """reference/configuration 1: what its daemons take is a warning with file and line, at start as at a reload."""
    section = fake_provider("one", cloud=cloud.name, launch_retries=0, pool_max_servers="3")
    with caplog.at_level(logging.WARNING):
        launcher = launch([section], {"small": {"min-ready": None}}, tenant_resource_limits=None)
        znodes.fulfilled(znodes.submit(["small"]))
        launcher.settings["labels"].append({"name": "small", "max-ready-age": "0"})
        launcher.settings["max-hold-age"] = None
        launcher.write(launcher.settings)
        add_label(launcher, 0, "late", znodes)
    znodes.fulfilled(znodes.submit(["late"]))
    told = [record.getMessage() for record in caplog.records if record.name == "nodepool.config"]
    assert all(text.startswith(f"{launcher.path}:") for text in told)
    for key in (
        "launch-retries",
        "max-servers",
        "min-ready",
        "tenant-resource-limits",
        "max-ready-age",
        "max-hold-age",
    ):
        assert any(f"{key}: " in text for text in told), key
    assert any("there is another label named 'small'" in text for text in told)


def test_broken_provider(launch: Launch, znodes: PoolZnodes, cloud: FakeCloud, monkeypatch: pytest.MonkeyPatch) -> None:
    """G-9, G-10: others serve, requests only it could serve fail; it is tried again until it works."""
    from nodepool.driver.fake import FakeProvider
    from nodepool.runtime import providers

    monkeypatch.setattr(providers, "RETRY", Backoff(0.2, 60.0))
    start = FakeProvider.start
    broken = {"two"}

    def flaky(self: FakeProvider, zk_conn: object) -> None:
        if self.name in broken:
            raise RuntimeError("no way")
        start(self, zk_conn)  # type: ignore[arg-type]

    monkeypatch.setattr(FakeProvider, "start", flaky)
    launch([fake_provider("one", cloud=cloud.name), fake_provider("two", ("big",), cloud=cloud.name)])
    znodes.fulfilled(znodes.submit(["small"]))
    lonely = znodes.submit(["big"])
    wait_for("it fails", lambda: znodes.request_state(lonely) == "failed")
    broken.clear()
    wait_for("it is there now", lambda: len(znodes.pools()) == 2)
    znodes.fulfilled(znodes.submit(["big"]))


def test_provider_goes_during_a_launch(
    launch: Launch, znodes: PoolZnodes, cloud: FakeCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G-6, L-17: its pool is not registered any more; a request in progress is not stuck, one that waits is free."""
    monkeypatch.setattr(intake, "START_SECONDS", 2.0)
    launcher = launch([fake_provider("one", cloud=cloud.name), fake_provider("two", ("big",), cloud=cloud.name)])
    cloud.set(hang=True)
    request_id = znodes.submit(["big"])
    wait_for("it launches", lambda: znodes.nodes("building"))
    gone = launcher.settings["providers"].pop(1)
    launcher.write(launcher.settings)
    wait_for("one pool is left", lambda: [pool["provider_name"] for pool in znodes.pools()] == ["one"])
    other = znodes.submit(["big"])
    wait_for("nobody has that now", lambda: znodes.request_state(other) == "failed")
    assert znodes.request_state(request_id) == "pending"
    cloud.set(hang=False)
    znodes.fulfilled(request_id)
    wait_for(
        "the pool has ended", lambda: "two/main" not in {pool.place for pool in launcher.nodepool.pool_threads.all()}
    )
    assert not znodes.request_lockers(request_id)
    launcher.settings["providers"].append(gone)
    launcher.write(launcher.settings)
    wait_for("it is back", lambda: len(znodes.pools()) == 2)
    znodes.fulfilled(znodes.submit(["big"]))


def test_paused_request_becomes_impossible(launch: Launch, znodes: PoolZnodes, cloud: FakeCloud) -> None:
    """Q-11: it is declined after the reload, and the pool goes on."""
    launcher = launch([fake_provider("one", cloud=cloud.name, pool_max_servers=2)])
    first = znodes.submit(["small"])
    znodes.fulfilled(first)
    second = znodes.submit(["small", "small"])
    wait_for("it waits", lambda: [pool["paused"] for pool in znodes.pools()] == [True])
    launcher.settings["providers"][0]["pools"][0]["max-servers"] = 1
    launcher.write(launcher.settings)
    wait_for("it is declined", lambda: znodes.request_state(second) == "failed")
    wait_for("the pool goes on", lambda: [pool["paused"] for pool in znodes.pools()] == [False])
    wait_for("its node is free", lambda: len(znodes.free_nodes()) == 1)


def test_no_provider_works(
    launch: Launch, znodes: PoolZnodes, cloud: FakeCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G-11: nothing is handled: requests wait."""
    from nodepool.driver.fake import FakeProvider

    def fail(provider: FakeProvider, zk_conn: object) -> None:
        raise RuntimeError("no way")

    monkeypatch.setattr(intake, "START_SECONDS", 2.0)
    with monkeypatch.context() as patch:
        patch.setattr(FakeProvider, "start", fail)
        launcher = launch([fake_provider("one", cloud=cloud.name)])
        request_id = znodes.submit(["small"])
        unknown = znodes.submit(["unknown"])
        wait_for("they are known", lambda: len(launcher.nodepool.cache.requests) == 2)
        assert znodes.pools() == []
    # The next attempt is due now.
    launcher.nodepool.providers._failed = dict.fromkeys(launcher.nodepool.providers._failed, (1, 0.0))  # noqa: SLF001
    znodes.fulfilled(request_id)
    wait_for("the other one fails now", lambda: znodes.request_state(unknown) == "failed")


def test_provider_that_is_removed(
    launch: Launch, znodes: PoolZnodes, cloud: FakeCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OV-8: its node stays, and its machine runs on; the commands say so, and what ends it."""
    launcher = launch([fake_provider("old", cloud=cloud.name)], labels={"small": {"min-ready": 1}})
    nodepool = CommandLine(launcher.path)
    wait_for("a node is ready", znodes.free_nodes)
    (node_id,) = znodes.nodes()
    launcher.write({"labels": [{"name": "small"}], "providers": [fake_provider("new", cloud=cloud.name)]})
    text = "no launcher serves provider old, of which there is 1 node (1 ready)"
    wait_for("status names it", lambda: text in " ".join(nodepool("status").out.split()))
    assert "or nodepool erase old forgets them" in nodepool("explain", node_id).out
    assert nodepool("explain", "old").out.startswith(f"Provider old {text}.")
    assert nodepool("erase", "old", "--force").status == 0
    assert "no launcher serves" not in nodepool("status").out
