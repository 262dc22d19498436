# SPDX-License-Identifier: Apache-2.0
"""The example driver's adapter against the simulated cloud: what the contract suite does not reach."""

from __future__ import annotations

import io
import logging
import threading
import urllib.error
import urllib.request
from email.message import Message
from pathlib import Path
from typing import Any

import pytest

from nodepool.clock import monotonic
from nodepool.driver.example.adapter import ExampleAdapter, Machines
from nodepool.driver.example.client import Client, meaning
from nodepool.driver.example.config import ExampleProviderConfig
from nodepool.driver.statemachine import Instance, StateMachine, machines
from nodepool.exceptions import (
    CapacityException,
    CloudUnavailableException,
    ImageCreateException,
    LaunchNodepoolException,
    LaunchStatusException,
    NotFound,
    QuotaException,
    RuntimeConfigurationException,
)
from nodepool.plan.retries import Backoff
from simulators.example_cloud import ExampleCloud
from tests.support.wait import DEADLINE_SECONDS, wait_for

METADATA = {"nodepool_provider_name": "somewhere", "nodepool_build_id": "1", "nodepool_upload_id": "2"}


TAGS = {"nodepool_provider_name": "somewhere", "nodepool_pool_name": "main", "nodepool_node_id": "1"}
LOG = logging.LoggerAdapter(logging.getLogger("test"), {})


def create(adapter: ExampleAdapter, config: ExampleProviderConfig, image: str | None = None) -> StateMachine:
    label = config.pools["main"].labels["built" if image else "small"]
    request: Any = None
    return adapter.getCreateStateMachine("np1", label, image, TAGS, request, "north", LOG)


def run(machine: StateMachine) -> Instance | None:
    """As the framework does: advance when woken, or when the machine wants it, until it is complete."""
    woken = threading.Event()
    machine.wake = woken.set
    end = monotonic() + DEADLINE_SECONDS
    while monotonic() < end:
        woken.clear()
        instance = machine.advance()
        if machine.complete:
            return instance
        woken.wait(machine.next_advance_seconds)
    raise TimeoutError(machine.state)


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
    """reference/driver 13: the class says what is to be done; of no answer: may it have been done?"""
    error = meaning(status, "text")
    assert type(error) is expected
    if isinstance(error, CloudUnavailableException):
        assert error.maybe_done is (status != 429)


def test_no_answer(adapter: ExampleAdapter, cloud: ExampleCloud) -> None:
    """A cloud that nobody can reach, or that answers what nobody can read, is away."""
    with pytest.raises(CloudUnavailableException, match="Connection refused"):
        Client("http://127.0.0.1:9", 0).limits()
    cloud.machines.set(down=True)
    with pytest.raises(CloudUnavailableException, match="503"):
        list(adapter.listInstances())


def test_throttled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls that change wait as long as the cloud says, all together; calls that read do not."""

    def busy(request: Any, **_: Any) -> Any:
        headers = Message()
        headers["Retry-After"] = "7"
        raise urllib.error.HTTPError(request.full_url, 429, "busy", headers, io.BytesIO(b"later"))

    monkeypatch.setattr(urllib.request, "urlopen", busy)
    client = Client("http://127.0.0.1:9", 0)
    pauses: list[float] = []
    monkeypatch.setattr(client._classes, "_clock", lambda: 100.0 + sum(pauses))
    monkeypatch.setattr(client._classes, "_sleep", pauses.append)
    with pytest.raises(CloudUnavailableException, match="429 later"):
        client.delete_machine("m-1")
    client._classes.wait("read")
    assert pauses == []
    client._classes.wait("change")
    assert pauses == [pytest.approx(7, abs=0.2)]


def test_life_of_a_machine(
    adapter: ExampleAdapter, provider_config: ExampleProviderConfig, cloud: ExampleCloud
) -> None:
    """L-3, X-3: it is made with its tags and a key, runs, and goes."""
    instance = run(create(adapter, provider_config))
    assert instance is not None
    (made,) = cloud.machines.instances()
    assert (instance.external_id, instance.interface_ip, instance.az) == (made.id, made.address, "north")
    assert dict(made.metadata) == TAGS
    assert instance.getQuotaInformation().get_resources() == {"instances": 1, "cores": 2, "ram": 4096}
    run(adapter.getDeleteStateMachine(made.id, LOG))
    assert cloud.machines.instances() == []


def test_machine_in_error(adapter: ExampleAdapter, provider_config: ExampleProviderConfig, cloud: ExampleCloud) -> None:
    """The id is known although the attempt fails."""
    cloud.machines.set(fail_launches=1)
    machine = create(adapter, provider_config)
    with pytest.raises(LaunchStatusException, match="is error"):
        run(machine)
    assert machine.external_id == cloud.machines.instances()[0].id


def test_lost_answers(adapter: ExampleAdapter, provider_config: ExampleProviderConfig, cloud: ExampleCloud) -> None:
    """L-4: the creation is sent again with its key, and makes no second machine."""
    cloud.machines.set(lost_answers=1)
    instance = run(create(adapter, provider_config))
    assert instance is not None
    assert [machine.id for machine in cloud.machines.instances()] == [instance.external_id]
    assert (cloud.machines.calls["create"], cloud.machines.made) == (2, 1)
    assert list(adapter.unansweredCreations()) == []


def test_late_lists(adapter: ExampleAdapter, provider_config: ExampleProviderConfig, cloud: ExampleCloud) -> None:
    """A list that does not show a new machine yet, or still shows one that is gone, changes nothing."""
    cloud.machines.set(list_lag_seconds=0.5)
    instance = run(create(adapter, provider_config))
    assert instance is not None
    run(adapter.getDeleteStateMachine(instance.external_id, LOG))
    assert (cloud.machines.made, cloud.machines.calls["create"], cloud.machines.calls["delete"]) == (1, 1, 1)
    cloud.machines.set(list_lag_seconds=0.0)
    assert cloud.machines.instances() == []


def test_swallowed_deletion(
    adapter: ExampleAdapter,
    provider_config: ExampleProviderConfig,
    cloud: ExampleCloud,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is sent again until the machine is gone."""
    monkeypatch.setattr(machines, "RESEND", Backoff(0.1, 60.0))
    monkeypatch.setattr(Machines, "lag_seconds", 0.0)
    instance = run(create(adapter, provider_config))
    assert instance is not None
    cloud.machines.set(swallowed_deletes=2)
    run(adapter.getDeleteStateMachine(instance.external_id, LOG))
    assert cloud.machines.calls["delete"] == 3
    assert cloud.machines.instances() == []


def test_list_fails_during_boot(
    adapter: ExampleAdapter, provider_config: ExampleProviderConfig, cloud: ExampleCloud
) -> None:
    """L-4: the machine is not given up, let alone made a second time."""
    cloud.machines.set(hang=True)
    machine = create(adapter, provider_config)
    woken = threading.Event()
    machine.wake = woken.set
    machine.advance()
    woken.wait(DEADLINE_SECONDS)
    cloud.machines.set(hang=False, down=True)
    assert machine.advance() is None
    wait_for("a list fails", lambda: adapter._machines.inventory.failures)
    cloud.machines.set(down=False)
    instance = run(machine)
    assert instance is not None
    assert (instance.external_id, cloud.machines.calls["create"]) == (machine.external_id, 1)


def test_delete_nothing(adapter: ExampleAdapter) -> None:
    """reference/driver 9: None is as good as deleted, and so is an id that is not there."""
    for external_id in (None, "nothing"):
        run(adapter.getDeleteStateMachine(external_id, LOG))


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
    for image in cloud.images.images():
        cloud.images.delete(image.id)
    assert not adapter.labelReady(labels["small"])
    assert adapter.labelReady(labels["built"])


def test_life_of_an_image(
    adapter: ExampleAdapter, provider_config: ExampleProviderConfig, cloud: ExampleCloud, tmp_path: Path
) -> None:
    """U-4, D-5: uploaded with its metadata, used by a machine, listed as a resource, deleted; again is no error."""
    (tmp_path / "image.qcow2").write_bytes(b"x" * 100_000)
    image = provider_config.diskimages["fedora"]
    image_id = adapter.uploadImage(image, "fedora-1", str(tmp_path / "image.qcow2"), "qcow2", METADATA)
    stored = cloud.images.image(image_id)
    assert stored.size == 100_000
    assert stored.metadata == {"colour": "blue", **METADATA}
    (listed,) = [image for image in adapter.listImages() if image.metadata]
    assert (listed.id, listed.name, listed.metadata) == (image_id, "fedora-1", stored.metadata)
    machine = create(adapter, provider_config, image_id)
    instance = run(machine)
    assert instance is not None
    assert instance.interface_ip
    found = {resource.type: resource for resource in adapter.listResources() if resource.metadata.get("colour")}
    assert found["image"].metadata == stored.metadata
    adapter.deleteResource(found["image"])
    adapter.deleteImage(image_id)
    assert names(cloud) == ["debian"]


def test_failed_upload_leaves_nothing(
    adapter: ExampleAdapter, provider_config: ExampleProviderConfig, cloud: ExampleCloud, tmp_path: Path
) -> None:
    """U-9: the error reaches the caller."""
    with pytest.raises(FileNotFoundError):
        adapter.uploadImage(provider_config.diskimages["fedora"], "fedora-1", str(tmp_path / "nothing"), "qcow2")
    assert names(cloud) == ["debian"]


@pytest.mark.parametrize(
    ("knob", "error"),
    [
        ("corrupted_uploads", ImageCreateException),
        ("truncated_uploads", ImageCreateException),
        ("broken_uploads", CloudUnavailableException),
        ("refused_images", CloudUnavailableException),
    ],
)
def test_bad_upload_leaves_nothing(
    adapter: ExampleAdapter,
    provider_config: ExampleProviderConfig,
    cloud: ExampleCloud,
    tmp_path: Path,
    knob: str,
    error: type[Exception],
) -> None:
    """U-9, U-14: what arrives is not what was sent, or does not arrive; the next one works."""
    (tmp_path / "image").write_bytes(b"0123456789")
    md5 = "781e5e245d69b566979b86e28d23f2c7"
    image, file = provider_config.diskimages["fedora"], str(tmp_path / "image")
    cloud.images.set(**{knob: 1})
    with pytest.raises(error):
        adapter.uploadImage(image, "fedora-1", file, "qcow2", METADATA, md5)
    assert names(cloud) == ["debian"]
    assert adapter.uploadImage(image, "fedora-1", file, "qcow2", METADATA, md5)


def names(cloud: ExampleCloud) -> list[str]:
    return [image.name for image in cloud.images.images()]


def test_console(adapter: ExampleAdapter, provider_config: ExampleProviderConfig) -> None:
    """L-16: only for labels that want it."""
    machine = create(adapter, provider_config)
    run(machine)
    labels = provider_config.pools["main"].labels
    assert adapter.getConsoleLog(labels["built"], machine.external_id) == f"{machine.external_id} login:"
    assert adapter.getConsoleLog(labels["small"], machine.external_id) is None
