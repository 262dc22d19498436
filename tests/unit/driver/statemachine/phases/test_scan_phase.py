# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.statemachine.phases.scan_phase`."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest

from nodepool.driver.framework.keyscan import ScanFailed
from nodepool.driver.statemachine.phases.scan_phase import ScanPhase
from nodepool.exceptions import LaunchKeyscanException
from tests.unit.driver.statemachine.phases.parts import make_node, make_order


class Run:
    """A phase; stands for the scans, whose answer is ``future``."""

    def __init__(self) -> None:
        self.node = make_node()
        self.node.interface_ip, self.node.connection_port, self.node.connection_type = "192.0.2.7", 22, "ssh"
        self.asked: list[Any] = []
        self.told = self.woken = 0
        self.future: Future[tuple[str, ...]] = Future()
        self.phase = ScanPhase(make_order(self.node), self, self._tell, self._wake)

    def scan(self, host: str, port: int, timeout: float, connection_type: str | None) -> Future[tuple[str, ...]]:
        self.asked.append((host, port, timeout, connection_type))
        return self.future

    def _tell(self) -> None:
        self.told += 1

    def _wake(self) -> None:
        self.woken += 1


def test_keys() -> None:
    """K-1: asked once; woken by the answer."""
    run = Run()
    assert run.phase.step() is not None
    assert run.phase.step() is not None
    assert run.asked == [("192.0.2.7", 22, 30.0, "ssh")]
    assert run.woken == 0
    run.future.set_result(("ssh-ed25519 AAAA",))
    assert run.woken == 1
    assert run.phase.step() is None
    assert run.node.host_keys == ["ssh-ed25519 AAAA"]


def test_keys_of_the_instance_win() -> None:
    """L-14."""
    run = Run()
    run.node.host_keys = ["ssh-rsa BBBB"]
    run.future.set_result(("ssh-ed25519 AAAA",))
    assert run.phase.step() is None
    assert run.node.host_keys == ["ssh-rsa BBBB"]


def test_no_answer() -> None:
    """L-16: the driver is told before the attempt fails."""
    run = Run()
    run.future.set_exception(ScanFailed("no answer"))
    with pytest.raises(LaunchKeyscanException, match="no answer"):
        run.phase.step()
    assert run.told == 1
