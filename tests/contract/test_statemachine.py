# SPDX-License-Identifier: Apache-2.0
"""The state-machine framework keeps the contract, shown with a small driver."""

from __future__ import annotations

from tests.support.fake_cloud_contract import FakeCloudContract
from tests.support.machine_driver import MachineDriver


class TestStateMachine(FakeCloudContract):
    """With the framework."""

    def make_driver(self) -> MachineDriver:
        return MachineDriver()
