# SPDX-License-Identifier: Apache-2.0
"""Drivers of the released package that play their cloud themselves, in the launcher's memory."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar

import yaml

from tests.functional.released_drivers.cloud import NO_SWEEP, Cloud


class InMemory(Cloud):
    """Nothing outside the launcher: what there is of a node is what its record says."""

    kind: ClassVar[str] = "itself"

    def machines(self) -> set[str]:
        return {key for key, node in self.znodes.nodes().items() if node.get("provider") == self.provider}


class Example(InMemory):
    """The example for authors. 11.0.0 launches nothing with it: its methods have the arguments of a time before."""

    driver: ClassVar[str] = "example"
    no_sweep: ClassVar[str] = NO_SWEEP

    def section(self) -> dict[str, Any]:
        image = {"name": "debian", "image-id": "1", "username": "zuul"}
        label = {"name": self.label, "cloud-image": "debian", "instance-type": "small"}
        pool = {"name": self.pool, "labels": [label]}
        return {"region": "here", "project": "lab", "cloud-images": [image], "pools": [pool]}


class Fake(InMemory):
    """A child of the released OpenStack driver with a cloud of its own, which logs its deletions."""

    driver: ClassVar[str] = "fake"

    def prepare(self) -> None:
        clouds = self.directory / "clouds.yaml"
        clouds.write_text(yaml.safe_dump({"clouds": {"fake": {"auth": {"auth_url": "http://fake"}}}}), encoding="utf-8")
        self.environment["OS_CLIENT_CONFIG_FILE"] = str(clouds)

    def section(self) -> dict[str, Any]:
        image = {"name": "debian", "image-name": "Fake Precise", "username": "zuul"}
        label = {"name": self.label, "cloud-image": "debian", "min-ram": 8192}
        pool = {"name": self.pool, "host-key-checking": False, "networks": ["fake"], "labels": [label]}
        return {"cloud": "fake", "rate": 0.01, "cloud-images": [image], "pools": [pool]}

    def check_node(self, node: Mapping[str, Any]) -> None:
        assert node["interface_ip"]
        assert node["resources"]["instances"] == 1

    def check_deleted(self, node_id: str) -> None:
        super().check_deleted(node_id)
        log = (self.directory / "launcher.log").read_text(encoding="utf-8")
        before, after = (re.findall(f"FakeOpenStackCloud: {verb} from (.*)", log) for verb in ("Delete", "Deleted"))
        name = f" name=np{node_id} "
        assert any(name in old and name not in new for old, new in zip(before, after, strict=False)), "not deleted"


class Test(InMemory):
    """The smallest driver without the state-machine framework."""

    __test__ = False
    driver: ClassVar[str] = "test"
    no_sweep: ClassVar[str] = NO_SWEEP

    def section(self) -> dict[str, Any]:
        return {"pools": [{"name": self.pool, "max-servers": 5, "labels": [self.label]}]}
