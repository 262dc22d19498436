# SPDX-License-Identifier: Apache-2.0
"""The answers have the shape of those of Azure: ``recorded_facts.yaml`` has what recordings show, by call."""

from __future__ import annotations

import json
import re
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from nodepool.config.loader import load_config
from nodepool.driver.azure.facts import VmPlace
from nodepool.driver.azure.machines import vm_body
from simulators.azure import AzureSettings
from simulators.azure.application import AzureApplication
from simulators.azure.cloud import Subscription
from simulators.azure.resources import GROUP, LOCATION, SUBSCRIPTION, TENANT, resource_id
from simulators.base.messages import Answer, Request
from tests.support.manual_clock import ManualClock

FACTS: Final[dict[str, Any]] = yaml.safe_load(
    Path(__file__).with_name("recorded_facts.yaml").read_text(encoding="utf-8")
)
MIB = 1024 * 1024
DISK = {"properties": {"creationData": {"createOption": "Upload", "uploadSizeBytes": MIB + 512}}}


CONFIG = """
zookeeper-servers: [{host: zk}]
zookeeper-tls: {cert: c, key: k, ca: a}
labels: [{name: small}]
providers:
- name: north
  driver: azure
  location: northeurope
  resource-group: nodepool
  resource-group-location: northeurope
  network: ci
  cloud-images:
  - name: debian
    username: zuul
    key: ssh-ed25519 AAAA
    image-reference: {publisher: Debian, offer: debian-12, sku: 12-gen2, version: latest}
  pools: [{name: main, labels: [{name: small, cloud-image: debian, hardware-profile: {vm-size: Standard_B1s}}]}]
"""


class Client:
    """Makes calls at a subscription whose time passes when it says."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        settings = AzureSettings(boot_seconds=(5, 5), delete_seconds=(5, 5))
        self.cloud = Subscription(settings, clock=self.clock)
        self.application = AzureApplication(self.cloud)
        form = {
            "client_id": settings.client_id,
            "client_secret": settings.client_secret,
            "scope": "https://management.azure.com/.default",
        }
        answer = self.call("POST", f"/{TENANT}/oauth2/v2.0/token", urllib.parse.urlencode(form).encode())
        self.token = json.loads(answer.body)["access_token"]

    token = ""

    def call(self, method: str, url: str, body: bytes = b"", **headers: str) -> Answer:
        place = urllib.parse.urlsplit(url)
        query = urllib.parse.parse_qs(place.query) or {"api-version": ["2025-11-01"]}
        login = {"authorization": f"Bearer {self.token}", "host": "management.azure.com"}
        self.cloud.core.run_due()
        return self.application.serve(Request(method, place.path, query, {**login, **headers}, body))

    def order(self, method: str, url: str, body: Any = None) -> Answer:
        return self.call(method, url, b"" if body is None else json.dumps(body).encode())

    def passes(self, seconds: float = 10.0) -> None:
        self.clock.now += seconds


def vm_order(subnet: str, directory: Path) -> dict[str, Any]:
    """As the driver makes it."""
    file = directory / "nodepool.yaml"
    file.write_text(CONFIG, encoding="utf-8")
    provider: Any = load_config(str(file)).providers["north"]
    label = provider.pools["main"].labels["small"]
    tags = {"nodepool_node_id": "0000000001", "nodepool_provider_name": "north"}
    place = VmPlace("Standard_B1s", "1", True)
    return vm_body("np1", "np1", label, place, label.cloud_image.reference(), subnet, tags)


def answers(directory: Path) -> Iterator[tuple[str, Answer]]:
    """All that are recorded."""
    client = Client()
    vm, nic = resource_id("virtualMachines", "np1"), resource_id("networkInterfaces", "np1-nic")
    ordered = client.order("PUT", vm, vm_order(client.cloud.subnet_id, directory))
    operation = ordered.headers["Azure-AsyncOperation"]
    yield "VM ordered", ordered
    yield "operation runs", client.order("GET", operation)
    client.passes()
    yield "operation of a VM ended", client.order("GET", operation)
    yield "VM", client.order("GET", vm)
    yield "VMs", client.order("GET", vm.removesuffix("/np1"))
    yield "state of a VM", client.order("GET", f"{vm}/instanceView")
    yield "interface", client.order("GET", nic)
    yield "public address", client.order("GET", resource_id("publicIPAddresses", "np1-v4-ip"))
    yield "interface in use", client.order("DELETE", nic)
    yield "VM deletion", client.order("DELETE", vm)
    yield "VM that goes", client.order("GET", vm)
    disk = resource_id("disks", "d1")
    ordered = client.order("PUT", disk, DISK)
    yield "disk ordered", ordered
    client.passes()
    yield "operation of a disk ended", client.order("GET", ordered.headers["Azure-AsyncOperation"])
    yield "disk", client.order("GET", disk)
    ordered = client.order("POST", f"{disk}/beginGetAccess", {"access": "Write", "durationInSeconds": 600})
    yield "access ordered", ordered
    client.passes()
    access = client.order("GET", ordered.headers["Azure-AsyncOperation"])
    yield "access", access
    yield "access by Location", client.order("GET", ordered.headers["Location"])
    address = json.loads(access.body)["properties"]["output"]["accessSAS"]
    footer = b"conectix" + b"\0" * 504
    pages = {"x-ms-range": f"bytes={MIB}-{MIB + 511}", "x-ms-page-write": "update"}
    assert client.call("PUT", f"{address}&comp=page", footer, **pages).status == 201
    ordered = client.order("POST", f"{disk}/endGetAccess")
    yield "access ends", ordered
    client.passes()
    yield "access ended", client.order("GET", ordered.headers["Azure-AsyncOperation"])
    image = resource_id("images", "i1")
    source = {"osType": "Linux", "osState": "Generalized", "managedDisk": {"id": disk}}
    body = {"properties": {"hyperVGeneration": "V2", "storageProfile": {"osDisk": source}}}
    yield "image ordered", client.order("PUT", image, body)
    client.passes()
    yield "image", client.order("GET", image)
    yield "image deletion", client.order("DELETE", image)
    yield "image that is gone", client.order("GET", image)
    where = f"/subscriptions/{SUBSCRIPTION}"
    usages = f"{where}/providers/Microsoft.Compute/locations/{LOCATION}/usages"
    yield "usages", client.order("GET", usages)
    yield "resource group", client.order("GET", f"{where}/resourceGroups/{GROUP}")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Answer]:
    return dict(answers(tmp_path_factory.mktemp("azure")))


def found(data: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Paths and values of all that is no object; a list has its own path, and those of its entries."""
    if isinstance(data, dict):
        for name, value in data.items():
            yield from found(value, f"{path}.{name}" if path else name)
    elif isinstance(data, list):
        yield path, data
        for entry in data:
            yield from found(entry, f"{path}[]")
    else:
        yield path, data


def fields(answer: Answer) -> dict[str, list[Any]]:
    """Values by path."""
    collected: dict[str, list[Any]] = {}
    for path, value in found(json.loads(answer.body)) if answer.body else ():
        collected.setdefault(path, []).append(value)
    return collected


@pytest.mark.parametrize("name", FACTS["recorded"])
def test_answer(made: dict[str, Answer], name: str) -> None:
    """Each recorded header and field is there, with its type, and nothing else but what is said to be newer."""
    assert made.keys() == FACTS["recorded"].keys()
    answer, fact = made[name], FACTS["recorded"][name]
    assert answer.status == fact["status"], answer.body
    told = {key.lower(): value for key, value in answer.headers.items()} | {"content-type": answer.content_type}
    for header, wanted in fact.get("headers", {}).items():
        if wanted is None:
            assert header not in told, header
        else:
            assert re.fullmatch(wanted, told.get(header, "")), (header, told)
    collected = fields(answer)
    types = {path: {type(value).__name__ for value in values} for path, values in collected.items()}
    recorded = {path: {kind} for kind, paths in fact.get("fields", {}).items() for path in paths}
    assert {path: types.get(path) for path in recorded} == recorded
    known = {*recorded, *(path.rpartition("[]")[0] for path in recorded if "[]" in path)}
    known |= {path.split("[]")[0] for path in recorded}
    stems = [prefix + also for also in FACTS["also"] for prefix in ("", "value[].", "properties.output.")]
    extra = {
        path
        for path in types
        if path not in known and not any(path == stem or path.startswith((f"{stem}.", f"{stem}[")) for stem in stems)
    }
    assert extra == set()
    for path, value in fact.get("values", {}).items():
        assert collected[path] == (value if "[]" in path else [value]), path
