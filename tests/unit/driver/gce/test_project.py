# SPDX-License-Identifier: Apache-2.0
"""The adapter at a simulated project: what tests/clouds does not ask for, and what the documentation says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodepool.driver.framework import cloud_errors
from nodepool.driver.framework.http.rest_calls import RestCalls
from nodepool.driver.gce.client import CALLS_A_MINUTE, FAILURES, ComputeEngine, group_sizes
from nodepool.driver.gce.images import GceImages, ObjectUpload, tar_gz
from nodepool.driver.statemachine.instance import node_id_of
from nodepool.exceptions import LaunchStatusException, RuntimeConfigurationException
from nodepool.plan.retries import Backoff
from simulators.gce import GceErrorRule, ZoneCapacity
from tests.support.provider_sections import label_of
from tests.unit.driver.gce.support import METADATA, PROVIDER, ZONES, Here, at_simulator, section
from tests.unit.driver.simulated_adapter import HOST, NODE, drive

TWO_ZONES = section(zone=ZONES)

# -- launches --


def test_type_that_a_zone_does_not_have(tmp_path: Path) -> None:
    """c2 is not in zone f: it is never asked for it there. A type that no zone has can never work."""
    data = section({"instance-type": "c2-standard-4"}, zone=["us-central1-f", "us-central1-a"])
    with at_simulator(tmp_path, data) as here:
        found = here.launch()
        assert (found.az, here.calls("instances.insert")) == ("us-central1-a", 1)
        here.delete(found.external_id)
    with (
        at_simulator(tmp_path, section({"instance-type": "n9-mega"})) as here,
        pytest.raises(RuntimeConfigurationException, match="no machine type 'n9-mega' in us-central1-a; correct"),
    ):
        here.adapter.getQuotaForLabel(label_of(here.adapter.config))


@pytest.mark.parametrize(
    ("spot", "kind", "words"),
    [
        (True, cloud_errors.CloudNoCapacityLater, "np0000000042 is STOPPING: it was preempted by Google, or"),
        (False, LaunchStatusException, "it was stopped or deleted by hand"),
    ],
)
def test_preempted(tmp_path: Path, spot: bool, kind: type[Exception], words: str) -> None:
    """A launch lacks capacity then."""
    with at_simulator(tmp_path, section({"use-spot": spot})) as here:
        creation = here.creation()
        drive(creation)
        with pytest.raises(kind, match=words):
            creation.seen(here.adapter.client.instance(ZONES[0], HOST)._replace(status="STOPPING"))
        here.delete(HOST)


def test_new_image_of_a_family(here: Here) -> None:
    """GC-4 (not repeated): what is remembered has an age; a refusal ends it."""
    label = label_of(here.adapter.config)
    for _ in range(2):
        link = here.adapter.facts.image_link(label, None)
        assert link.endswith("global/images/debian-12-bookworm-v20261101")
    assert here.calls("images.getFromFamily") == 1
    here.simulator.change(errors=[GceErrorRule(operation="instances.insert", kind="400", count=1)])
    with pytest.raises(cloud_errors.CloudRefused):
        here.launch()
    here.launch(attempt=2)
    assert here.calls("images.getFromFamily") == 2
    here.delete(f"{HOST}-2")


# -- zones that do not answer --


@pytest.fixture
def silent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Here]:
    """The first zone does not answer."""
    # Constants of the modules: calls wait for most of a minute.
    for name in ("CALL_SECONDS", "OPERATION_SECONDS"):
        monkeypatch.setitem(ComputeEngine.instance.__globals__, name, 0.2)
    monkeypatch.setitem(RestCalls.call.__globals__, "READ_AGAIN", Backoff(0.0, 0.0))
    with at_simulator(tmp_path, TWO_ZONES, unreachable=[ZONES[0]], unreachable_seconds=60.0) as made:
        yield made


def unanswered(here: Here, times: int = FAILURES) -> None:
    """Calls that make it known that the zone does not answer."""
    for _ in range(times):
        with pytest.raises(cloud_errors.CloudAway):
            here.adapter.client.delete_instance(ZONES[0], "np1")


def test_others_go_on(silent: Here) -> None:
    """GC-5, GC-8, GC-9: lists, launches and deletions of another zone, although the silent one is the first.

    A launch whose turn comes when that is known goes there, too: nothing was ordered.
    """
    creation = silent.creation()
    assert creation.id_in_advance() == f"{ZONES[0]}/{HOST}"
    unanswered(silent)
    assert list(silent.adapter.listInstances()) == []
    found = drive(creation)
    assert found is not None
    assert (found.external_id, silent.calls("instances.insert")) == (f"{ZONES[1]}/{HOST}-1-1", 1)
    assert [one.external_id for one in silent.adapter.listInstances()] == [found.external_id]
    before = silent.calls("instances.delete")
    with pytest.raises(cloud_errors.CloudAway, match=f"zone {ZONES[0]} does not answer; it is asked again"):
        silent.adapter.client.delete_instance(ZONES[0], "np1")
    assert silent.calls("instances.delete") == before
    silent.delete(found.external_id)


# -- leftovers --


@pytest.mark.parametrize("refused", ["images.list", "disks.list"])
def test_leftovers(tmp_path: Path, refused: str, caplog: pytest.LogCaptureFixture) -> None:
    """GC-3, GC-8 (not repeated): labels say whose a thing is. What cannot be listed hides no others."""
    with at_simulator(tmp_path, section(diskimages=[{"name": "fedora"}])) as here:
        with here.simulator.cloud() as cloud:
            cloud.add_address("ours", {"nodepool_provider_name": PROVIDER, "nodepool_node_id": NODE})
            cloud.add_address("theirs", {})
        here.simulator.change(errors=[GceErrorRule(operation=refused, kind="403")])
        for _ in range(2):
            found = [one for one in here.adapter.listResources() if node_id_of(one.metadata, PROVIDER)]
            assert [(one.type, node_id_of(one.metadata, PROVIDER)) for one in found] == [("address", NODE)]
        assert caplog.text.count("cannot be listed") == 1
        here.adapter.deleteResource(found[0])
        with here.simulator.cloud() as cloud:
            assert here.contents()["addresses"] == 1


def test_instance_of_the_released_nodepool(here: Here) -> None:
    """GC-3: it has metadata items and no labels; both are understood, and items are asked for once."""
    with here.simulator.cloud() as cloud:
        cloud.add_instance(HOST, dict(METADATA))
        cloud.add_instance("of-others", {"other": "thing"})
    for _ in range(2):
        (ours, theirs) = sorted(here.adapter.listInstances(), key=lambda one: str(one.external_id))
        assert (ours.metadata, theirs.metadata) == (METADATA, {})
    assert here.calls("instances.get") == 1
    here.delete(HOST)


# -- doc/source/drivers/gce --

PAGE = (Path(__file__).parents[4] / "doc/source/drivers/gce/behaviour.rst").read_text(encoding="utf-8")
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
    return f"compute.{kind}.{({'insert': 'create', 'aggregatedList': 'list'}).get(verb, verb)}"


def test_permissions_are_those_of_the_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The least that the service account needs: nothing is missing in the role, and nothing is too much."""
    unit = 1024 * 1024
    # A constant of the modules, wherever those are.
    for user in (tar_gz, ObjectUpload.run, GceImages.upload):
        monkeypatch.setitem(user.__globals__, "DISK_UNIT_BYTES", unit)
    file = tmp_path / "image.raw"
    file.write_bytes(bytes(1024))
    data = section({"console-log": True}, {"subnetwork": "default"}, diskimages=[{"name": "fedora"}])
    with at_simulator(tmp_path, data, disk_unit_bytes=unit) as here:
        assert all(result.ok for result in here.adapter.preflight())
        here.simulator.change(capacity=[ZoneCapacity(late=False)])
        with pytest.raises(cloud_errors.CloudNoCapacity):
            here.launch()
        here.simulator.change(capacity=[])
        label = label_of(here.adapter.config)
        assert here.adapter.getConsoleLog(label, HOST) is None
        found = here.launch(attempt=2)
        assert here.adapter.getConsoleLog(label, found.external_id)
        list(here.adapter.listResources())
        # What is asked for when no list shows it, and for how a creation ends.
        here.adapter.client.instance(ZONES[0], f"{HOST}-2")
        list(here.adapter.client.operations(ZONES[0], "insert", "listing operations"))
        here.delete(found.external_id)
        fedora, owner = here.adapter.config.diskimages["fedora"], {"nodepool_provider_name": PROVIDER}
        here.adapter.deleteImage(here.adapter.uploadImage(fedora, "fedora-1", str(file), metadata=owner))
        calls = set(here.simulator.state()["calls"])
    with at_simulator(tmp_path, TWO_ZONES) as here:
        list(here.adapter.listResources())
        calls |= set(here.simulator.state()["calls"])
    made = {permission(call) for call in calls if not call.startswith("token")}
    documented = set(re.findall(r'"([a-z]+\.[\w.]+)"', PAGE))
    assert documented == made | DEMANDED | SELDOM


@pytest.mark.parametrize("rate", [0.5, 2, 25, 100])
def test_rates(rate: float) -> None:
    """CM-5 (today): in no minute there are more calls than Google allows, unless ``rate`` alone is more."""
    for size in group_sizes(rate).values():
        assert size.burst + 60 * size.rate <= max(CALLS_A_MINUTE, 60 * rate + 1)
    burst = f"{group_sizes(2)['read'].burst:g}"
    assert f"With ``rate: 2`` these are {burst} at once." in " ".join(PAGE.split())
    assert {size.burst for size in group_sizes(2).values()} == {group_sizes(2)["read"].burst}
