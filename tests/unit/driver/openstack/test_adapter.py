# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.openstack.adapter`: quota, labels, lists (reference/driver 9)."""

from __future__ import annotations

import math
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from nodepool.driver.framework.cloud_errors import CloudAway
from nodepool.driver.openstack.adapter import OpenStackAdapter
from nodepool.driver.statemachine.adapter import wants_request
from nodepool.exceptions import RuntimeConfigurationException
from tests.unit.driver.openstack.support import (
    LOG,
    METADATA,
    REQUEST,
    StubTransport,
    label_section,
    load,
    only_label,
    section,
    server,
)


@pytest.fixture
def transport() -> StubTransport:
    return StubTransport()


class Made:
    """Makes adapters and stops them."""

    def __init__(self, transport: StubTransport) -> None:
        self.transport = transport
        self.adapters: list[OpenStackAdapter] = []

    def __call__(self, label: dict[str, Any] | None = None, **more: Any) -> OpenStackAdapter:
        config, _ = load(section(label, **more))
        self.adapters.append(OpenStackAdapter(config, self.transport))  # type: ignore[arg-type]
        return self.adapters[-1]


@pytest.fixture
def make(transport: StubTransport) -> Iterator[Made]:
    made = Made(transport)
    yield made
    for adapter in made.adapters:
        adapter.stop()


def test_sdk_is_not_imported() -> None:
    """Only a configured cloud costs the 40 MiB and the time that openstacksdk takes."""
    code = "import sys, nodepool.driver.openstack; print([m for m in sys.modules if m.startswith(('openst', 'keyst'))])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"


def test_signature(make: Made) -> None:
    adapter = make()
    assert wants_request(adapter.getCreateStateMachine)
    label: Any = only_label(adapter.config)
    launch = adapter.getCreateStateMachine("np1", label, None, {}, None, None, LOG)
    assert (launch.state, launch.external_id, launch.complete) == ("start", None, False)
    deletion = adapter.getDeleteStateMachine(None, LOG)
    deletion.advance()
    assert deletion.complete


def test_limits(make: Made, transport: StubTransport) -> None:
    """Negative limits are none. Block storage is only asked when it is used."""
    absolute = {"maxTotalCores": 20, "maxTotalInstances": 10, "maxTotalRAMSize": -1}
    transport.answers["GET", "/limits"] = {"limits": {"absolute": absolute}}
    limits = make().getQuotaLimits().quota["compute"]
    assert limits == {
        "cores": 20,
        "instances": 10,
        "ram": math.inf,
        "volumes": math.inf,
        "volume-gb": math.inf,
    }
    assert transport.count("GET", "/limits") == 1
    absolute.update({"maxTotalVolumes": 3, "maxTotalVolumeGigabytes": 100})
    adapter = make(label_section(**{"boot-from-volume": True}))
    limits = adapter.getQuotaLimits().quota["compute"]
    assert (limits["volumes"], limits["volume-gb"]) == (3, 100)
    transport.services.discard("block-storage")
    assert adapter.getQuotaLimits().quota["compute"]["volumes"] == math.inf


def test_quota_of_a_label(make: Made) -> None:
    """Q-14: an unknown flavor is a permanent error of that label."""
    adapter = make()
    label: Any = only_label(adapter.config)
    assert adapter.getQuotaForLabel(label).get_resources() == {"cores": 2, "instances": 1, "ram": 4096}
    adapter = make(label_section(**{"boot-from-volume": True, "volume-size": 30}))
    label = only_label(adapter.config)
    assert adapter.getQuotaForLabel(label).get_resources()["volume-gb"] == 30
    label.flavor_name = "nope"
    with pytest.raises(RuntimeConfigurationException, match="the cloud has no flavor named 'nope'; correct"):
        adapter.getQuotaForLabel(label)


def test_label_ready(make: Made, transport: StubTransport, caplog: pytest.LogCaptureFixture) -> None:
    """O-7: a label without its cloud image is not ready, said once; while the cloud is away nobody knows better."""
    adapter = make()
    label: Any = only_label(adapter.config)
    assert adapter.labelReady(label)
    label.cloud_image.image_name = "nope"
    assert [adapter.labelReady(label) for _ in range(3)] == [False] * 3
    assert caplog.text.count("label small: the cloud has no usable image 'nope'; correct cloud-image") == 1
    label.cloud_image.image_name = "other"
    transport.answers["GET", "/images"] = CloudAway("500")
    assert adapter.labelReady(label)
    label.cloud_image = None
    assert adapter.labelReady(label)


def test_zones(make: Made, transport: StubTransport) -> None:
    adapter = make()
    zone = {"zoneName": "a", "zoneState": {"available": True}}
    transport.answers["GET", "/os-availability-zone"] = {"availabilityZoneInfo": [zone]}
    assert adapter.getAZs() == ["a"]
    adapter.cloud.facts.clear()
    transport.answers["GET", "/os-availability-zone"] = {"availabilityZoneInfo": []}
    assert adapter.getAZs() == [None]


def test_instances(make: Made, transport: StubTransport) -> None:
    """Q-4: those of others too, with what they use; volumes count when they are used here."""
    volumes = {"os-extended-volumes:volumes_attached": [{"id": "v1"}]}
    foreign = server("x", "ACTIVE", metadata={}, flavor={"vcpus": 8, "ram": 100}, **volumes)
    transport.answers["GET", "/servers/detail"] = {"servers": [server(), foreign]}
    transport.answers["GET", "/volumes/detail"] = {"volumes": [{"id": "v1", "size": 20}]}
    ours, other = make(label_section(**{"boot-from-volume": True})).listInstances()
    assert ours.getQuotaInformation().get_resources() == {"cores": 2, "instances": 1, "ram": 4096}
    assert other.getQuotaInformation().get_resources() == {
        "cores": 8,
        "instances": 1,
        "ram": 100,
        "volumes": 1,
        "volume-gb": 20,
    }
    assert [found.metadata.get("nodepool_node_id") for found in (ours, other)] == ["0000000042", None]


def test_unanswered_creations(make: Made, transport: StubTransport) -> None:
    """Q-3: while nobody knows whether there is a server, it counts; it is one of the node's label and pool."""
    adapter = make()
    transport.answers["POST", "/servers"] = CloudAway("timed out")
    woken = threading.Event()
    launch = adapter.getCreateStateMachine(
        "np0000000042", only_label(adapter.config), None, METADATA, REQUEST, None, LOG
    )
    launch.wake = woken.set
    launch.advance()
    assert woken.wait(30)
    (creation,) = adapter.unansweredCreations()
    assert (creation.key.node_id, creation.pool, creation.label) == ("0000000042", "main", "small")


def test_console(make: Made, transport: StubTransport) -> None:
    """reference/configuration 7: only labels with console-log."""
    adapter = make()
    transport.answers["POST", "/servers/s1/action"] = {"output": "panic"}
    label: Any = only_label(adapter.config)
    assert adapter.getConsoleLog(label, "s1") is None
    label.console_log = True
    assert adapter.getConsoleLog(label, "s1") == "panic"
    assert adapter.getConsoleLog(label, "gone") is None
