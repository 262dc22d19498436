# SPDX-License-Identifier: Apache-2.0
"""The example driver's adapter against the simulated cloud: what the contract suite does not reach."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from nodepool.driver.example.adapter import ExampleAdapter, MachineList
from nodepool.driver.example.client import Client, meaning
from nodepool.driver.example.config import ExampleProviderConfig
from nodepool.driver.statemachine import StateMachine
from nodepool.exceptions import (
    CapacityException,
    CloudUnavailableException,
    LaunchNodepoolException,
    LaunchStatusException,
    NotFound,
    QuotaException,
    RuntimeConfigurationException,
)
from nodepool.testing.example_cloud import ExampleCloud

METADATA = {"nodepool_provider_name": "somewhere", "nodepool_build_id": "1", "nodepool_upload_id": "2"}


def create(adapter: ExampleAdapter, config: ExampleProviderConfig, image: str | None = None) -> StateMachine:
    label = config.pools["main"].labels["built" if image else "small"]
    request: Any = None
    log: Any = None
    return adapter.getCreateStateMachine("np1", label, image, {}, request, "north", log)


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (400, LaunchNodepoolException),
        (403, QuotaException),
        (404, NotFound),
        (409, CapacityException),
        (429, CloudUnavailableException),
        (500, CloudUnavailableException),
        (503, CloudUnavailableException),
    ],
)
def test_meaning_of_errors(status: int, expected: type[Exception]) -> None:
    """reference/driver 13: the class says what is to be done."""
    assert meaning(status) is expected


def test_no_answer(adapter: ExampleAdapter, cloud: ExampleCloud) -> None:
    """A cloud that nobody can reach, or that answers what nobody can read, is away."""
    with pytest.raises(CloudUnavailableException, match="Connection refused"):
        Client("somewhere", "http://127.0.0.1:9", 0).limits()
    cloud.machines.set(down=True)
    with pytest.raises(CloudUnavailableException, match="503"):
        list(adapter.listInstances())


def test_machine_in_error(adapter: ExampleAdapter, provider_config: ExampleProviderConfig, cloud: ExampleCloud) -> None:
    """The id is known although the attempt fails."""
    cloud.machines.set(fail_launches=1)
    machine = create(adapter, provider_config)
    with pytest.raises(LaunchStatusException, match="is error"):
        machine.advance()
    assert machine.external_id == cloud.machines.instances()[0].id


def test_list_fails_during_boot(
    adapter: ExampleAdapter,
    provider_config: ExampleProviderConfig,
    cloud: ExampleCloud,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """L-4: the machine is not given up, let alone made a second time."""
    monkeypatch.setattr("nodepool.driver.example.adapter.LIST_SECONDS", 0.0)
    cloud.machines.set(hang=True)
    machine = create(adapter, provider_config)
    assert machine.advance() is None
    cloud.machines.set(hang=False, down=True)
    assert machine.advance() is None
    assert not machine.complete
    cloud.machines.set(down=False)
    instance = machine.advance()
    assert instance is not None
    assert instance.external_id == machine.external_id
    assert cloud.machines.calls["create"] == 1


def test_delete_nothing(adapter: ExampleAdapter) -> None:
    """reference/driver 9: None is as good as deleted, and so is an id that is not there."""
    log: Any = None
    machine = adapter.getDeleteStateMachine(None, log)
    machine.advance()
    assert machine.complete
    with pytest.raises(NotFound):
        adapter.getDeleteStateMachine("nothing", log).advance()


def test_list_is_shared(cloud: ExampleCloud) -> None:
    """Who does not ask for a newer one gets the last list, and the last error."""
    machines = MachineList(Client("somewhere", cloud.url, 0))
    assert machines.get() is machines.get()
    assert cloud.machines.calls["list"] == 1
    cloud.machines.set(down=True)
    assert machines.get() == {}
    with pytest.raises(CloudUnavailableException):
        machines.get(begun_after=time.monotonic())
    with pytest.raises(CloudUnavailableException):
        machines.get()


def test_quota(adapter: ExampleAdapter, provider_config: ExampleProviderConfig, cloud: ExampleCloud) -> None:
    """Q-14: limits and needs; a size that does not exist."""
    cloud.machines.set(limits={"instances": 3.0})
    limits = adapter.getQuotaLimits().quota["compute"]
    assert (limits["instances"], limits["cores"]) == (3, float("inf"))
    label = provider_config.pools["main"].labels["small"]
    assert adapter.getQuotaForLabel(label).get_resources() == {"instances": 1, "cores": 2, "ram": 4096}
    label.size = "enormous"
    with pytest.raises(RuntimeConfigurationException, match="no size 'enormous', only: large, small"):
        adapter.getQuotaForLabel(label)


def test_labels_and_zones(adapter: ExampleAdapter, provider_config: ExampleProviderConfig, cloud: ExampleCloud) -> None:
    """The cloud image is looked for; one that is built here is the framework's business."""
    labels = provider_config.pools["main"].labels
    assert adapter.getAZs() == ["north", "south"]
    assert adapter.labelReady(labels["small"])
    cloud.images.clear()
    assert not adapter.labelReady(labels["small"])
    assert adapter.labelReady(labels["built"])


def test_life_of_an_image(
    adapter: ExampleAdapter, provider_config: ExampleProviderConfig, cloud: ExampleCloud, tmp_path: Path
) -> None:
    """U-4, D-5: uploaded with its metadata, used by a machine, listed as a resource, deleted; again is no error."""
    (tmp_path / "image.qcow2").write_bytes(b"x" * 100_000)
    image = provider_config.diskimages["fedora"]
    image_id = adapter.uploadImage(image, "fedora-1", str(tmp_path / "image.qcow2"), "qcow2", METADATA)
    assert cloud.images[image_id]["bytes"] == 100_000
    assert cloud.images[image_id]["tags"] == {"colour": "blue", **METADATA}
    machine = create(adapter, provider_config, image_id)
    instance = machine.advance()
    assert instance is not None
    assert instance.interface_ip
    found = {resource.type: resource for resource in adapter.listResources() if resource.metadata.get("colour")}
    assert found["image"].metadata == cloud.images[image_id]["tags"]
    adapter.deleteResource(found["image"])
    adapter.deleteImage(image_id)
    assert image_id not in cloud.images


def test_failed_upload_leaves_nothing(
    adapter: ExampleAdapter, provider_config: ExampleProviderConfig, cloud: ExampleCloud, tmp_path: Path
) -> None:
    """U-9: the error reaches the caller."""
    with pytest.raises(FileNotFoundError):
        adapter.uploadImage(provider_config.diskimages["fedora"], "fedora-1", str(tmp_path / "nothing"), "qcow2")
    assert list(cloud.images) == ["debian"]


def test_console(adapter: ExampleAdapter, provider_config: ExampleProviderConfig) -> None:
    """L-16: only for labels that want it."""
    machine = create(adapter, provider_config)
    machine.advance()
    labels = provider_config.pools["main"].labels
    assert adapter.getConsoleLog(labels["built"], machine.external_id) == f"{machine.external_id} login:"
    assert adapter.getConsoleLog(labels["small"], machine.external_id) is None
