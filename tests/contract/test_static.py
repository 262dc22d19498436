# SPDX-License-Identifier: Apache-2.0
"""The static driver keeps the contract, with a real host and with one that is never contacted."""

from __future__ import annotations

from typing import Any

import pytest

from nodepool.driver.static import StaticDriver
from nodepool.testing.contract import DriverContract
from tests.support.sshd import SshServer


class TestStatic(DriverContract):
    """One host with two slots on a real sshd, and one host of another pool."""

    label = "small"
    ssh_port = 22

    @pytest.fixture(autouse=True)
    def _host(self, sshd: SshServer) -> None:
        self.ssh_port = sshd.port

    def make_driver(self) -> StaticDriver:
        return StaticDriver()

    def provider_section(self) -> dict[str, Any]:
        host = {"connection-port": self.ssh_port, "labels": ["small", "any"], "max-parallel-jobs": 2}
        return {
            "name": "lab",
            "driver": "static",
            "pools": [
                {"name": "main", "nodes": [{"name": "127.0.0.31", **host}]},
                {"name": "other", "nodes": [{"name": "127.0.0.32", **host, "labels": ["large"]}]},
            ],
        }


class TestStaticUnchecked(DriverContract):
    """A host that is never contacted."""

    label = "small"

    def make_driver(self) -> StaticDriver:
        return StaticDriver()

    def provider_section(self) -> dict[str, Any]:
        host = {"name": "127.0.0.33", "labels": ["small"], "host-key-checking": False}
        return {"name": "lab", "driver": "static", "pools": [{"name": "main", "nodes": [host]}]}
