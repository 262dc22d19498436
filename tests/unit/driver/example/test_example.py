# SPDX-License-Identifier: Apache-2.0
"""The example driver against its simulated cloud: what the contract suite does not reach."""

from __future__ import annotations

import logging
import time
from types import SimpleNamespace
from typing import Any

import pytest
import voluptuous

from nodepool import clock as package_clock
from nodepool.config.objects import Config, DiskImage, Label
from nodepool.driver.example import ExampleDriver
from nodepool.driver.example.client import Client, meaning
from nodepool.driver.example.types import Machine
from nodepool.exceptions import (
    CapacityException,
    CloudUnavailableException,
    LaunchNodepoolException,
    NotFound,
    QuotaException,
    RuntimeConfigurationException,
)
from simulators.example_cloud import ExampleCloud
from tests.support.manual_clock import ManualClock
from tests.support.recording_server import RecordingServer
from tests.support.wait import wait_for

TAGS = {"nodepool_provider_name": "somewhere", "nodepool_pool_name": "main", "nodepool_node_id": "1"}
LOG = logging.LoggerAdapter(logging.getLogger("test"), {})
LABEL = {"name": "small", "cloud-image": "debian", "size": "small"}


def section(url: str = "http://127.0.0.1:9", label: dict[str, Any] = LABEL) -> dict[str, Any]:
    return {
        "name": "somewhere",
        "driver": "example",
        "url": f"{url}/",
        "rate": 0,
        "diskimages": [{"name": "fedora", "meta": {"colour": "blue", "nodepool_build_id": "forged"}}],
        "cloud-images": [{"name": "debian", "username": "debian"}],
        "pools": [{"name": "main", "labels": [label, {"name": "built", "diskimage": "fedora", "size": "large"}]}],
    }


@pytest.mark.parametrize(
    ("status", "expected", "maybe_done"),
    [
        (400, LaunchNodepoolException, None),
        (403, QuotaException, None),
        (404, NotFound, None),
        (409, CapacityException, None),
        (429, CloudUnavailableException, False),
        (500, CloudUnavailableException, True),
    ],
)
def test_meaning_of_errors(status: int, expected: type[Exception], maybe_done: bool | None) -> None:
    """reference/driver 13: the class says what is to be done; of no answer: may it have been done?"""
    error = meaning(status, "text")
    assert (type(error), getattr(error, "maybe_done", None)) == (expected, maybe_done)


def test_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls that change wait as long as the cloud says, all together. No answer, and odd ones."""
    with pytest.raises(CloudUnavailableException, match="Connection refused"):
        Client("http://127.0.0.1:9", 0).limits()
    with pytest.raises(KeyError):
        Machine.of({"id": "m-1"})
    clock = ManualClock()
    changed = {"monotonic": clock, "sleep": clock.pass_seconds}
    busy = b"HTTP/1.1 429 Busy\r\nRetry-After: 7\r\nContent-Length: 5\r\n\r\nlater"
    with RecordingServer(lambda _: busy) as server:
        monkeypatch.setattr(package_clock, "time", SimpleNamespace(**{**vars(time), **changed}))
        client = Client(server.url, 0)
        for seconds in (0, 7):
            with pytest.raises(CloudUnavailableException, match="429 later"):
                client.delete_machine("m-1")
            assert clock.now - 1000 == pytest.approx(seconds, abs=0.2)
        monkeypatch.undo()


def test_adapter() -> None:
    """Q-14, L-4, D-2: a size that does not exist; a creation that is sent again with its key; what runs is ready."""
    with ExampleCloud() as cloud:
        top = Config()
        top.labels = {name: Label(name) for name in ("built", "small")}
        top.diskimages = {"fedora": DiskImage("fedora")}
        config = ExampleDriver().getProviderConfig(section(cloud.url))
        config.load(top)
        label: Any = config.pools["main"].labels["small"]
        adapter = ExampleDriver().getAdapter(config)
        cloud.machines.set(lost_answers=1)
        request: Any = None
        machine = adapter.getCreateStateMachine("np1", label, None, TAGS, request, "north", LOG)
        instance: Any = wait_for("it runs", machine.advance)
        assert (cloud.machines.calls["create"], cloud.machines.made) == (2, 1)
        assert (instance.ready, instance.az, instance.metadata) == (True, "north", TAGS)
        cloud.machines.set(list_lag_seconds=0.5)
        deletion = adapter.getDeleteStateMachine(machine.external_id, LOG)
        wait_for("it is deleted", lambda: deletion.advance() or deletion.complete)
        assert cloud.machines.calls["delete"] == 1
        assert adapter.getQuotaForLabel(label).get_resources() == {"instances": 1, "cores": 2, "ram": 4096}
        label.size = "enormous"
        with pytest.raises(RuntimeConfigurationException, match="no size 'enormous', only: large, small"):
            adapter.getQuotaForLabel(label)
        adapter.stop()


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ({"name": "small", "size": "small"}, "exactly one of diskimage and cloud-image"),
        (LABEL | {"diskimage": "fedora"}, "exactly one"),
        (LABEL | {"cloud-image": "debain"}, "the provider has no cloud-image 'debain'"),
        ({"name": "small", "cloud-image": "debian"}, "required key not provided"),
    ],
)
def test_refused(label: dict[str, Any], expected: str) -> None:
    """A mistake in a label is an error of the configuration, not of a launch."""
    with pytest.raises(voluptuous.Invalid, match=expected):
        ExampleDriver().getProviderConfig(section()).getSchema()(section(label=label))
