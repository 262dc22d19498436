# SPDX-License-Identifier: Apache-2.0
"""A cloud of answers that the test writes, executors and a clock that it drives."""

from __future__ import annotations

import copy
import json
import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from types import SimpleNamespace
from typing import Any

from nodepool.config.objects import Config, DiskImage, Label
from nodepool.driver.framework import cloud_errors
from nodepool.driver.framework.cloud_errors import CloudNotFound
from nodepool.driver.framework.http.plain_http import HttpAnswer
from nodepool.driver.openstack.cloud import OpenStackCloud
from nodepool.driver.openstack.clouds import Clouds, CloudSettings
from nodepool.driver.openstack.config import OpenStackLabel, OpenStackProviderConfig
from nodepool.driver.openstack.servers import ServerCreation
from nodepool.driver.openstack.transport import Transport
from nodepool.driver.statemachine import CloudInstance, Order
from tests.support.manual_clock import ManualClock, ManualStop
from tests.support.manual_executor import ManualExecutor
from tests.support.quiet_inventory import QuietInventory
from tests.support.recording_server import RecordingServer, Sent
from tests.support.tables import driver_table

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
    pools = [{"name": "main", "labels": [label or label_section()], **(pool or {})}]
    return copy.deepcopy({**driver_table("openstack", "things")["section"], "pools": pools, **more})


def load(data: dict[str, Any], clouds: Clouds | None = None) -> tuple[OpenStackProviderConfig, Config]:
    """Load a section in a configuration that has its labels and the image ``fedora``."""
    config = Config()
    image = config.diskimages["fedora"] = DiskImage("fedora")
    image.username, image.python_path, image.shell_type = "builder", "/py", "csh"
    for pool in data["pools"]:
        for label in pool.get("labels", []):
            config.labels[label["name"]] = Label(label["name"])
    made = OpenStackProviderConfig(data, clouds or StubClouds())
    made.getSchema()(data)
    made.load(config)
    return made, config


def only_label(config: OpenStackProviderConfig) -> OpenStackLabel:
    (pool,) = config.pools.values()
    (label,) = pool.labels.values()
    return label


def answer_of(cell: Any) -> Any:
    """What a table says: an answer, or the name of an error with its arguments."""
    kinds = vars(cloud_errors)
    return kinds[cell[0]](*cell[1:]) if isinstance(cell, list) and cell[0] in kinds else cell


class StubTransport:
    """Answers of the cloud, by method and path; an exception is raised, a callable is called with body and query."""

    provider = "cloud-a"

    def __init__(self) -> None:
        self.stopped = threading.Event()
        self.services = {"compute", "network", "image", "block-storage"}
        shown = copy.deepcopy(driver_table("openstack", "things")["answers"])
        self.answers: dict[tuple[str, str], Any] = {tuple(call.split()): answer for call, answer in shown.items()}
        images = self.answers["GET", "/images"]
        self.answers["GET", "/images"] = lambda body, query: images if query.get("name") == "debian" else {"images": []}
        self.calls: list[tuple[str, str]] = []
        self.bodies: list[Any] = []

    def has(self, service: str) -> bool:
        return service in self.services

    def call(self, service: str, method: str, path: str, what: str, **given: Any) -> Any:
        body, query, arguments = (given.get(key) for key in ("body", "query", "arguments"))
        given.get("permit", lambda: None)()
        self.calls.append((method, path))
        self.bodies.append(body)
        answer = self.answers.get((method, path), CloudNotFound(f"{method} {path}", 404))
        if isinstance(answer, list):
            answer = answer.pop(0) if len(answer) > 1 else answer[0]
        if callable(answer):
            answer = answer(body if arguments is None else arguments, dict(query or {}))
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self) -> None:
        self.stopped.set()

    def count(self, method: str, path: str) -> int:
        return self.calls.count((method, path))

    def sent(self, method: str) -> list[str]:
        return [path for called, path in self.calls if called == method]

    def body(self, method: str, path: str) -> Any:
        """Of the first such call."""
        return self.bodies[self.calls.index((method, path))]


class StubCloud(OpenStackCloud):
    """An `OpenStackCloud` without threads."""

    inventory_class = QuietInventory

    def __init__(self, config: OpenStackProviderConfig, settings: Mapping[str, Any] | None, clock: ManualClock) -> None:
        self.stub = StubTransport()
        super().__init__(config, self.stub, settings)  # type: ignore[arg-type]
        self.clock = clock
        self.creators = self.others = ManualExecutor()

    def show(self, *servers: dict[str, Any], complete: bool = True) -> None:
        """The cloud has these servers, and they are listed now."""
        self.stub.answers["GET", "/servers/detail"] = {"servers": list(servers)}
        self.clock.now += 1
        self.inventory.refresh(complete)

    def creation(self, image_id: str | None = None, az: str | None = "az1") -> ServerCreation:
        """The launch of the only label, after its first step."""
        label = only_label(self.config)
        launch = ServerCreation(self, Order("np0000000042", label, image_id, METADATA, REQUEST, az, LOG))
        launch.advance()
        return launch

    def launched(self, **more: Any) -> CloudInstance:
        """What becomes of a launch whose server is active at once."""
        launch = self.creation()
        self.show(server(status="ACTIVE", **more))
        instance = launch.advance() or launch.advance()
        assert launch.complete
        assert isinstance(instance, CloudInstance)
        return instance


def server(server_id: str = "s1", status: str = "BUILD", **more: Any) -> dict[str, Any]:
    """A server as Nova shows it."""
    return {
        **driver_table("openstack", "things")["server"],
        "id": server_id,
        "status": status,
        "metadata": METADATA,
        **more,
    }


class Response:
    """Of requests. Names of headers with _ in place of -."""

    def __init__(self, status: int, body: Any = b"", **headers: str) -> None:
        self.status_code = status
        self.content = body if isinstance(body, bytes) else json.dumps(body).encode()
        kind = "text/html" if self.content.startswith(b"<") else "application/json"
        self.headers = {"Content-Type": kind, **{key.replace("_", "-"): value for key, value in headers.items()}}

    def json(self) -> Any:
        return json.loads(self.content)


class FastTransport(Transport):
    """Its answers come in turn, the last one again and again; exceptions are raised. Notes what was asked."""

    def __init__(self, *answers: Any, interval: float = 0) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, str, dict[str, Any]]] = []
        self.clock = ManualClock(100.0).rules()
        self.client: Any = SimpleNamespace(request=self._answer, close=lambda: None)
        super().__init__("cloud-a", object(), interval, make_client=lambda *_: self.client)
        self.stopped = self.waiting = ManualStop(self.clock)

    def _answer(self, url: str, method: str, **arguments: Any) -> Any:
        self.asked.append((method, url, arguments))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer() if callable(answer) else answer

    def get(self, service: str = "compute") -> Any:
        return self.call(service, "GET", "/servers", "listing servers")


class Site:
    """A client of a simulated cloud whose compute service is a server that keeps what it is sent."""

    def __init__(self, client: Any, service: RecordingServer) -> None:
        self.client = client
        self.service = service

    def call(self, method: str = "GET", path: str = "/servers/1", **arguments: Any) -> Any:
        """As `Transport` makes it."""
        return self.client.request(path, method, **{"raise_exc": False, **arguments})

    def is_quick(self, method: str = "GET", path: str = "/servers/1", **arguments: Any) -> bool:
        return isinstance(self.call(method, path, **arguments), HttpAnswer)

    def learn(self) -> None:
        """The first call opens a connection, and is the one to be learned from."""
        assert not self.is_quick()

    @property
    def last(self) -> Sent:
        return self.service.sent[-1]


MakeSite = Callable[..., AbstractContextManager[Site]]
