# SPDX-License-Identifier: Apache-2.0
"""What doc/source/drivers/gce says is so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from nodepool.driver.framework.cloud_errors import CloudNoCapacity
from nodepool.driver.gce import images
from nodepool.driver.gce.client import CALLS_A_MINUTE, group_sizes
from nodepool.driver.gce.errors import CAPACITY, QUOTA, THROTTLED
from simulators.gce import ZoneCapacity
from tests.unit.driver.gce.sections import PROVIDER, ZONES, label_of, section
from tests.unit.driver.gce.support import at_simulator
from tests.unit.driver.simulated_adapter import HOST

ROOT = Path(__file__).parents[4]
PAGE = (ROOT / "doc/source/drivers/gce/behaviour.rst").read_text(encoding="utf-8")
#: What Google demands for parts of an instance or an image; the simulated role does not know it.
DEMANDED = {
    *("compute.disks.create", "compute.disks.setLabels", "compute.images.setLabels", "compute.images.useReadOnly"),
    *("compute.instances.setLabels", "compute.instances.setMetadata", "compute.instances.setServiceAccount"),
    *("compute.instances.setTags", "compute.subnetworks.use", "compute.subnetworks.useExternalIp"),
    # An image is made of an object that the service account can read.
    "storage.objects.get",
}
#: Only asked for, or deleted, when there is something of ours: of calls that the test does not make.
SELDOM = {"compute.addresses.delete", "compute.disks.delete", "compute.zoneOperations.get"}


def permission(operation: str) -> str:
    """What a role must allow for a call that the simulator has counted."""
    kind, _, verb = operation.partition(".")
    if kind == "objects":
        return f"storage.objects.{'create' if verb in ('insert', 'upload') else verb}"
    verb = {"insert": "create", "aggregatedList": "list"}.get(verb, verb)
    return f"compute.{kind}.{verb}"


def test_permissions_are_those_of_the_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The least that the service account needs: nothing is missing in the role, and nothing is too much."""
    monkeypatch.setattr(images, "DISK_UNIT_BYTES", 1024 * 1024)
    file = tmp_path / "image.raw"
    file.write_bytes(bytes(1024))
    data = section({"console-log": True}, {"subnetwork": "default"}, diskimages=[{"name": "fedora"}])
    with at_simulator(tmp_path, data, disk_unit_bytes=1024 * 1024) as here:
        assert all(result.ok for result in here.adapter.preflight())
        here.simulator.change(capacity=[ZoneCapacity(late=False)])
        with pytest.raises(CloudNoCapacity):
            here.launch()
        here.simulator.change(capacity=[])
        found = here.launch(attempt=2)
        here.adapter.getConsoleLog(label_of(here.adapter.config), found.external_id)
        list(here.adapter.listResources())
        # What is asked for when no list shows it, and for how a creation ends.
        here.adapter.client.instance(ZONES[0], f"{HOST}-2")
        list(here.adapter.client.operations(ZONES[0], "insert", "listing operations"))
        here.delete(found.external_id)
        fedora, owner = here.adapter.config.diskimages["fedora"], {"nodepool_provider_name": PROVIDER}
        name = here.adapter.uploadImage(fedora, "fedora-1", str(file), metadata=owner)
        here.adapter.deleteImage(name)
        calls = set(here.simulator.state()["calls"])
    with at_simulator(tmp_path, section(zone=ZONES)) as here:
        list(here.adapter.listResources())
        calls |= set(here.simulator.state()["calls"])
    made = {permission(call) for call in calls if not call.startswith("token")}
    documented = set(re.findall(r'^        "([a-z]+\.[\w.]+)"', PAGE, re.MULTILINE))
    assert documented == made | DEMANDED | SELDOM


def test_codes_are_those_of_the_code() -> None:
    table = PAGE.partition("What Google refuses")[2].partition("The log and")[0]
    cells = re.findall(r"^   \* - (``.*$)", table, re.MULTILINE)
    known = [QUOTA, CAPACITY, THROTTLED]
    assert len(cells) == len(known)
    for cell, codes in zip(cells, known, strict=True):
        assert set(re.findall(r"``(\w+)``", cell)) <= codes


@pytest.mark.parametrize("rate", [0.5, 2, 25, 100])
def test_rates(rate: float) -> None:
    """CM-5 (today): in no minute there are more calls than Google allows, unless ``rate`` alone is more."""
    for size in group_sizes(rate).values():
        assert size.burst + 60 * size.rate <= max(CALLS_A_MINUTE, 60 * rate + 1)
    burst = f"{group_sizes(2)['read'].burst:g}"
    assert PAGE.partition("Rates\n-----")[2].count(f"     - {burst}\n") == len(group_sizes(2))
