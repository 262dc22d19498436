# SPDX-License-Identifier: Apache-2.0
"""Drivers that need no cloud: static hosts, machines on such hosts, and the drivers that only show how."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from tests.functional.released_drivers.cloud import Cloud, Section


def static_section(cloud: Cloud, label: str, count: int) -> dict[str, Any]:
    """A provider of the static driver with hosts that the real sshd answers for."""
    host = {"labels": [label], "connection-port": cloud.surroundings.sshd.port, "username": "zuul", "timeout": 10}
    nodes = [{**host, "name": f"127.3.0.{number + 1}"} for number in range(count)]
    return {"pools": [{"name": "main", "nodes": nodes}]}


class StaticHosts(Cloud):
    """Two hosts with a real sshd. There is nothing to delete: a host that was used is registered again."""

    driver: ClassVar[str] = "static"
    kind: ClassVar[str] = "sshd"

    def section(self) -> dict[str, Any]:
        return static_section(self, self.label, 2)

    def machines(self) -> set[str]:
        return set(self.znodes.nodes())

    def check_node(self, node: Mapping[str, Any]) -> None:
        assert node["host_keys"]
        assert set(node["host_keys"]) <= set(self.surroundings.sshd.host_keys)
        assert node["username"] == "zuul"

    def check_deleted(self, node_id: str) -> None:
        super().check_deleted(node_id)
        ready = self.znodes.nodes("ready")
        assert len(ready) == 2, f"ready nodes: {sorted(ready)}"


class BackedNodes(Cloud):
    """Nodes on hosts of the released static driver."""

    driver: ClassVar[str] = "metastatic"
    kind: ClassVar[str] = "static hosts of the released driver"
    looks_at_start: ClassVar[bool] = True

    def section(self) -> dict[str, Any]:
        label = {"name": self.label, "backing-label": "host", "max-parallel-jobs": 2, "grace-time": 1}
        return {"pools": [{"name": self.pool, "max-servers": 4, "labels": [label]}]}

    def sections(self) -> list[Section]:
        backing = {"driver": "static", **static_section(self, "host", 2)}
        return [*super().sections(), Section("hosts", backing, ("host",))]

    def machines(self) -> set[str]:
        """Nodes on hosts that are in use."""
        hosts = self.znodes.nodes("in-use")
        nodes = self.znodes.nodes().items()
        return {key for key, node in nodes if (node.get("driver_data") or {}).get("backing_node") in hosts}

    def check_deleted(self, node_id: str) -> None:
        """The host of the node is released after the grace time, and registered again."""
        nodes = self.znodes.nodes()
        assert node_id not in nodes
        assert [node["state"] for node in nodes.values()] == ["ready", "ready"], nodes

    def check_node(self, node: Mapping[str, Any]) -> None:
        assert node["driver_data"]["backing_node"] in self.znodes.nodes("in-use")
        assert node["interface_ip"].startswith("127.3.0.")
