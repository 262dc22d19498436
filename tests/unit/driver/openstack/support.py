# SPDX-License-Identifier: Apache-2.0
"""A cloud of answers that the test writes, executors and a clock that it drives."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

from nodepool.config.objects import Config, DiskImage, Label
from nodepool.driver.framework.cloud_errors import CloudNotFound
from nodepool.driver.openstack.cloud import OpenStackCloud
from nodepool.driver.openstack.clouds import Clouds, CloudSettings
from nodepool.driver.openstack.config import OpenStackLabel, OpenStackProviderConfig
from nodepool.driver.openstack.create import ServerCreation
from nodepool.driver.openstack.transport import CloudAnswer
from nodepool.driver.openstack.views import Server
from tests.support.manual_clock import ManualClock
from tests.support.manual_executor import ManualExecutor
from tests.support.quiet_inventory import QuietInventory

LOG = logging.LoggerAdapter(logging.getLogger("test"), {})

METADATA = {"nodepool_node_id": "0000000042", "nodepool_pool_name": "main", "nodepool_provider_name": "cloud-a"}
REQUEST: Any = SimpleNamespace(id="200-7", node_types=["small"], requestor="zuul", tenant_name="t", event_id="e")


class StubClouds(Clouds):
    """Knows every cloud; reads no file."""

    def __init__(self, **values: Any) -> None:
        super().__init__()
        self.values = values

    def settings(self, cloud: str, region: str | None) -> CloudSettings:
        return CloudSettings(dict(self.values))

    def files(self) -> list[str]:
        return []


def label_section(**more: Any) -> dict[str, Any]:
    return {"name": "small", "cloud-image": "debian", "flavor-name": "m1", **more}


def section(label: dict[str, Any] | None = None, *, pool: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """A provider section with one pool and one label."""
    return {
        "name": "cloud-a",
        "driver": "openstack",
        "cloud": "example",
        "diskimages": [{"name": "fedora"}],
        "cloud-images": [{"name": "debian", "username": "debian"}],
        "pools": [{"name": "main", "labels": [label or label_section()], **(pool or {})}],
        **more,
    }


def load(data: dict[str, Any], clouds: Clouds | None = None) -> tuple[OpenStackProviderConfig, Config]:
    """Load a section in a configuration that has its labels and the image ``fedora``."""
    config = Config()
    config.diskimages["fedora"] = DiskImage("fedora")
    config.diskimages["fedora"].username = "builder"
    config.diskimages["fedora"].python_path = "/py"
    config.diskimages["fedora"].shell_type = "csh"
    for pool in data["pools"]:
        for label in pool.get("labels", []):
            config.labels[label["name"]] = Label(label["name"])
    made = OpenStackProviderConfig(data, clouds or StubClouds())
    made.getSchema()(data)
    made.load(config)
    return made, config


class StubTransport:
    """Answers of the cloud, by method and path; an exception is raised, a callable is called with body and query."""

    provider = "cloud-a"

    def __init__(self) -> None:
        self.stopped = threading.Event()
        self.services = {"compute", "network", "image", "block-storage"}
        self.answers: dict[tuple[str, str], Any] = {
            ("GET", "/servers/detail"): {"servers": []},
            ("GET", "/flavors/detail"): {"flavors": [{"id": "f1", "name": "m1", "vcpus": 2, "ram": 4096}]},
            ("GET", "/images"): lambda body, query: {
                "images": [{"id": "i1", "name": "debian", "status": "active"}] if query.get("name") == "debian" else []
            },
            ("GET", "/networks"): {"networks": [{"id": "n1", "name": "internal"}]},
            ("POST", "/servers"): {"server": {"id": "s1"}},
            ("DELETE", "/servers/s1"): {},
            ("GET", "/floatingips"): {"floatingips": []},
        }
        self.calls: list[tuple[str, str]] = []
        self.bodies: list[Any] = []

    def has(self, service: str) -> bool:
        return service in self.services

    def call(
        self,
        service: str,
        method: str,
        path: str,
        what: str,
        *,
        body: Any = None,
        query: Mapping[str, Any] | None = None,
        arguments: Mapping[str, Any] | None = None,
        permit: Callable[[], None] = lambda: None,
    ) -> CloudAnswer:
        permit()
        self.calls.append((method, path))
        self.bodies.append(body)
        answer = self.answers.get((method, path), CloudNotFound(f"{method} {path}", 404))
        if isinstance(answer, list):
            answer = answer.pop(0) if len(answer) > 1 else answer[0]
        if callable(answer):
            answer = answer(body if arguments is None else arguments, dict(query or {}))
        if isinstance(answer, Exception):
            raise answer
        return CloudAnswer(200, answer, {})

    def close(self) -> None:
        self.stopped.set()

    def count(self, method: str, path: str) -> int:
        return self.calls.count((method, path))


class StubCloud(OpenStackCloud):
    """An `OpenStackCloud` without threads."""

    def __init__(self, config: OpenStackProviderConfig, settings: Mapping[str, Any] | None = None) -> None:
        self.stub = StubTransport()
        super().__init__(config, self.stub, settings)  # type: ignore[arg-type]
        self.clock = ManualClock()
        self.creators = self.others = ManualExecutor()
        self.inventory = QuietInventory(config.name, self.list_instances, self.changes_since, clock=self.clock)
        self.inventory.on_news = self.delete_strays
        self.inventory.on_list = self._listed

    def show(self, *servers: dict[str, Any], complete: bool = True) -> None:
        """The cloud has these servers, and they are listed now."""
        self.stub.answers["GET", "/servers/detail"] = {"servers": list(servers)}
        self.clock.now += 1
        self.inventory.refresh(complete)


def server(server_id: str = "s1", status: str = "BUILD", **more: Any) -> dict[str, Any]:
    """A server as Nova shows it."""
    return {
        "id": server_id,
        "name": "np0000000042",
        "status": status,
        "metadata": METADATA,
        "addresses": {"internal": [{"addr": "10.0.0.5", "version": 4, "OS-EXT-IPS:type": "fixed"}]},
        "flavor": {"id": "f1"},
        "OS-EXT-AZ:availability_zone": "nova",
        "hostId": "h1",
        "updated": "2026-01-01T12:00:00Z",
        **more,
    }


def view(server_id: str = "s1", status: str = "ACTIVE", **more: Any) -> Server:
    return Server.of(server(server_id, status, **more))


def only_label(config: OpenStackProviderConfig) -> OpenStackLabel:
    (pool,) = config.pools.values()
    (label,) = pool.labels.values()
    return label


def machine(cloud: StubCloud, *, image_id: str | None = None, az: str | None = "az1") -> ServerCreation:
    """A launch of the only label."""
    label = only_label(cloud.config)
    return ServerCreation(cloud, "np0000000042", label, image_id, METADATA, REQUEST, az, LOG, cloud.clock)


def body(cloud: StubCloud) -> dict[str, Any]:
    """Of the creation."""
    found: dict[str, Any] = cloud.stub.bodies[cloud.stub.calls.index(("POST", "/servers"))]["server"]
    return found
