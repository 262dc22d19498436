# SPDX-License-Identifier: Apache-2.0
"""The threads that launch and delete one node (rules L, X; reference/driver 12)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from nodepool.driver.framework.node_tasks import NodeDeleter, NodeLauncher
from nodepool.driver.interface import Provider
from nodepool.exceptions import (
    LaunchNetworkException,
    NotFound,
    QuotaException,
    ServerCreateTimeoutException,
    ServerDeleteTimeoutException,
    ZKConnectionError,
)
from nodepool.metrics import reports
from nodepool.model import states
from nodepool.model.node import Node
from tests.support.scripted_driver import ScriptedHandler, ScriptedProvider, Stage


@pytest.fixture
def reported(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Keys of the launches that were counted."""
    keys: list[str] = []
    monkeypatch.setattr(reports, "report_launch", lambda key, *args, **more: keys.append(key))
    return keys


class Launcher(NodeLauncher):
    def __init__(self, handler: ScriptedHandler, do: Callable[[Node], object]) -> None:
        super().__init__(handler, handler.launched[0])
        self.do = do

    def launch(self) -> None:
        self.do(self.node)


def throw(error: BaseException) -> Callable[[Node], object]:
    def do(node: Node) -> object:
        raise error

    return do


def run(stage: Stage, do: Callable[[Node], object]) -> Launcher:
    launcher = Launcher(stage.begin("small"), do)
    launcher.run()
    assert launcher.complete
    assert stage._woken.is_set(), "the pool worker looks at once"
    return launcher


def test_ready(stage: Stage, reported: list[str]) -> None:
    """L-12: what the driver filled in is stored together with `ready`."""
    run(stage, lambda node: setattr(node, "external_id", "x"))
    [node] = stage.zk.nodeIterator()
    assert (node.state, node.external_id) == (states.READY, "x")
    assert reported == ["ready"]


@pytest.mark.parametrize(
    ("error", "state", "key"),
    [
        (LaunchNetworkException("no address"), states.FAILED, "error.network"),
        (QuotaException("full"), states.ABORTED, "error.quota"),
        (ServerCreateTimeoutException("slow"), states.FAILED, "error.servercreatetimeout"),
        (RuntimeError("no way"), states.FAILED, "error.unknown"),
        (SystemExit(1), states.FAILED, "error.unknown"),
        (ZKConnectionError("away"), states.FAILED, "error.zksession"),
    ],
)
def test_errors(stage: Stage, reported: list[str], error: BaseException, state: str, key: str) -> None:
    """L-6, L-7, L-9: the class of the error decides; no error leaves the handler waiting for ever."""
    run(stage, throw(error))
    assert [node.state for node in stage.zk.nodeIterator()] == [state]
    assert reported == [key]


def test_error_that_cannot_be_read(stage: Stage, reported: list[str], caplog: pytest.LogCaptureFixture) -> None:
    """L-6: not even an error of a driver that raises when it is looked at leaves the handler waiting for ever."""

    class Unreadable(Exception):
        @property
        def statsd_key(self) -> str:
            raise RuntimeError("no way")

    launcher = run(stage, throw(Unreadable("broken")))
    assert launcher.node.state == states.FAILED
    assert reported == ["error.unknown"]
    assert "could not be stored" in caplog.text


def test_timeout_without_traceback(stage: Stage, reported: list[str], caplog: pytest.LogCaptureFixture) -> None:
    """reference/driver 13"""
    run(stage, throw(ServerCreateTimeoutException("slow")))
    [record] = [record for record in caplog.records if record.name == "nodepool.NodeLauncher"]
    assert record.exc_info is None


def test_node_was_taken(stage: Stage, reported: list[str]) -> None:
    """A node that somebody deleted during its launch is not the request's fault."""
    launcher = run(stage, lambda node: stage.zk.deleteRawNode(node.key))
    assert launcher.node.state == states.ABORTED


def test_outcome_that_cannot_be_stored(stage: Stage, reported: list[str], caplog: pytest.LogCaptureFixture) -> None:
    """What is not stored is not ready: nobody gets a node that is `building` in ZooKeeper."""
    launcher = run(stage, lambda node: setattr(node, "driver_data", object()))
    assert launcher.node.state == states.FAILED
    assert [node.state for node in stage.zk.nodeIterator()] == [states.BUILDING]
    assert "could not be stored" in caplog.text


def test_session_lost(stage: Stage, reported: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """L-9"""

    def away(node: Node) -> None:
        raise ZKConnectionError("away")

    handler = stage.begin("small")
    monkeypatch.setattr(stage.zk.nodes, "save", away)
    launcher = Launcher(handler, lambda node: None)
    launcher.run()
    assert launcher.node.state == states.FAILED
    assert reported == ["error.zksession"]


class Cloud(ScriptedProvider):
    """Notes calls; ``errors`` by the name of the call."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.calls: list[str] = []
        self.errors: dict[str, BaseException] = {}

    def note(self, name: str) -> None:
        self.calls.append(name)
        if name in self.errors:
            raise self.errors[name]

    def cleanupNode(self, node_id: Any) -> None:
        self.note(f"cleanup {node_id}")

    def waitForNodeCleanup(self, node_id: Any) -> None:
        self.note(f"wait {node_id}")

    def nodeDeletedNotification(self, node: Node) -> None:
        self.note("notify")


class Deletion:
    """A locked node and its deleter."""

    def __init__(self, external_id: str | None = "x") -> None:
        self.stage = Stage(Cloud)
        self.cloud = cast(Cloud, self.stage.provider)
        self.node = self.stage.add_ready(external_id=external_id)
        self.node.state = states.USED
        self.stage.zk.nodes.lock_and_save(self.node)
        self.deleter = NodeDeleter(self.stage.zk, cast(Provider, self.cloud), self.node)


def test_delete(monkeypatch: pytest.MonkeyPatch) -> None:
    """X-3: `deleting`, the machine, the znode, the provider is told."""
    deletion = Deletion()
    seen: list[str] = []
    note = deletion.cloud.note

    def look(name: str) -> None:
        seen.extend(state for state, _, _ in deletion.stage.nodes())
        note(name)

    monkeypatch.setattr(deletion.cloud, "note", look)
    deletion.deleter.run()
    assert deletion.cloud.calls == ["cleanup x", "wait x", "notify"]
    assert seen == [states.DELETING, states.DELETING]
    assert deletion.stage.nodes() == []


@pytest.mark.parametrize("call", ["cleanup x", "wait x"])
def test_machine_is_gone_already(call: str) -> None:
    """X-4"""
    deletion = Deletion()
    deletion.cloud.errors[call] = NotFound()
    deletion.deleter.run()
    assert deletion.stage.nodes() == []


def test_node_without_a_machine() -> None:
    """X-4: only the znode."""
    deletion = Deletion(None)
    deletion.deleter.run()
    assert deletion.cloud.calls == ["notify"]
    assert deletion.stage.nodes() == []


@pytest.mark.parametrize("error", [RuntimeError("no way"), ServerDeleteTimeoutException("slow")])
@pytest.mark.parametrize("call", ["cleanup x", "wait x"])
def test_cloud_error(call: str, error: Exception) -> None:
    """X-5: unlocked, still `deleting`, nobody is told."""
    deletion = Deletion()
    deletion.cloud.errors[call] = error
    deletion.deleter.run()
    assert deletion.stage.nodes() == [(states.DELETING, None, False)]
    assert "notify" not in deletion.cloud.calls


def test_error_in_the_notification(caplog: pytest.LogCaptureFixture) -> None:
    deletion = Deletion()
    deletion.cloud.errors["notify"] = RuntimeError("no way")
    deletion.deleter.run()
    assert deletion.stage.nodes() == []
    assert "nodeDeletedNotification" in caplog.text


def test_node_was_deleted_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """X-8: whoever comes second ends quietly."""
    deletion = Deletion()
    wait = deletion.cloud.waitForNodeCleanup

    def vanish(node_id: Any) -> None:
        wait(node_id)
        deletion.stage.zk.deleteRawNode(deletion.node.key)

    monkeypatch.setattr(deletion.cloud, "waitForNodeCleanup", vanish)
    deletion.deleter.run()
    assert deletion.stage.nodes() == []
    assert deletion.node.lock is None
