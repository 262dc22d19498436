# SPDX-License-Identifier: Apache-2.0
"""``nodepool delete --now``: what somebody at a terminal sees while it waits."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, cast

import pytest

from nodepool.cmd import direct, node_changes
from nodepool.cmd.image_wait import ProgressLine
from nodepool.driver import gateway
from nodepool.driver.interface import Provider
from nodepool.model.node import Node
from nodepool.zk.zookeeper import ZooKeeper
from tests.support.terminal import TerminalStream, without_escapes


class Deletion:
    """It lasts for so many looks."""

    def __init__(self, looks: int) -> None:
        self.left = looks
        self.joined: list[float | None] = []

    def is_alive(self) -> bool:
        return self.left > 0

    def join(self, timeout: float | None = None) -> None:
        self.joined.append(timeout)
        self.left -= 1


class Store:
    """Knows that the node is to be deleted."""

    def storeNode(self, node: Node) -> None:
        assert node.state == "deleting"


@pytest.fixture
def deletion(monkeypatch: pytest.MonkeyPatch) -> Deletion:
    """Of any node, whose lock is free."""
    made = Deletion(3)

    @contextlib.contextmanager
    def locked(*_: Any) -> Iterator[None]:
        yield

    monkeypatch.setattr(node_changes, "locked", locked)
    monkeypatch.setattr(gateway, "start_node_cleanup", lambda provider, node: made)
    return made


def delete(stream: TerminalStream | None) -> None:
    with ProgressLine(stream) as line:
        direct._delete(cast(ZooKeeper, Store()), cast(Provider, None), Node("small", "0000000001"), 5.0, line)


def test_on_a_terminal(deletion: Deletion) -> None:
    stream = TerminalStream()
    delete(stream)
    told = [line for line in without_escapes(stream.raw_text).replace("\r", "\n").splitlines() if line]
    assert told[0] == "node 0000000001: waiting for its lock"
    assert [line.partition(" for ")[0] for line in told[1:]] == ["node 0000000001: deleting"] * 3
    assert deletion.joined == [*[direct.LOOK_SECONDS] * 3, None]


def test_elsewhere(deletion: Deletion) -> None:
    """It waits once, as it has always done."""
    delete(None)
    assert deletion.joined == [None]
