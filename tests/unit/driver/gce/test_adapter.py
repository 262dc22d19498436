# SPDX-License-Identifier: Apache-2.0
"""The adapter at a simulated project: launches, quota, images."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from nodepool.driver.framework.cloud_errors import CloudAway, CloudNoCapacityLater, CloudQuota, CloudRefused, CloudSetup
from nodepool.driver.gce import instances
from nodepool.driver.statemachine.instance import for_node
from nodepool.exceptions import CapacityException, LaunchStatusException, RuntimeConfigurationException
from nodepool.model.request import NodeRequest
from nodepool.plan.retries import Backoff
from simulators.gce import GceBootRule, GceErrorRule, ZoneCapacity
from tests.unit.driver.gce.sections import PROVIDER, ZONES, label_of, section
from tests.unit.driver.gce.support import METADATA, Here, at_simulator
from tests.unit.driver.simulated_adapter import HOST, LOG, drive

TWO_ZONES = section(zone=ZONES)


# -- launches --


def test_launch_and_delete(here: Here) -> None:
    """GC-2, GC-5, GC-6, GC-9, CM-8: one insert makes everything, one DELETE takes it away."""
    instance = here.launch()
    assert (instance.external_id, instance.cloud, instance.region, instance.az) == (
        *(HOST, "Google"),
        *("us-central1", "us-central1-a"),
    )
    assert instance.public_ipv4 is not None
    assert instance.interface_ip == instance.public_ipv4 != instance.private_ipv4
    assert instance.metadata == METADATA
    assert (here.contents()["instances"], here.contents()["disks"]) == (1, 1)
    here.delete(HOST)
    assert not here.contents().get("instances")
    assert not here.contents().get("disks")
    assert (here.calls("instances.insert"), here.calls("instances.delete")) == (1, 1)


@pytest.mark.parametrize("kind", ["drop", "500", "html"])
def test_lost_answer(here: Here, kind: str) -> None:
    """CM-8: the insert is sent again with its request id, and there is no second instance."""
    here.simulator.change(errors=[GceErrorRule(operation="instances.insert", kind=kind, after=True, count=1)])
    assert here.launch().external_id == HOST
    assert here.calls("instances.insert") == 2
    assert here.contents()["instances"] == 1
    here.delete(HOST)


@pytest.mark.parametrize("fact", ["machine_type", "image_link"])
def test_nothing_is_known_before(here: Here, monkeypatch: pytest.MonkeyPatch, fact: str) -> None:
    """CM-8: no answer to what is asked before the insert: nothing was made, and there is nothing to look for."""

    def away(*_: Any) -> None:
        raise CloudAway("no answer")

    monkeypatch.setattr(here.adapter.facts, fact, away)
    with pytest.raises(CloudAway, match="no answer") as caught:
        here.launch()
    assert not caught.value.maybe_done
    assert not list(here.adapter.unansweredCreations())
    assert here.calls("instances.insert") == 0


def test_next_attempt_has_another_name(here: Here) -> None:
    """CM-8 (today): the operation says in seconds why the instance failed; nothing gets in the way of the next one."""
    here.simulator.change(boots=[GceBootRule(count=1, code="INTERNAL_ERROR", message="it broke")])
    with pytest.raises(LaunchStatusException, match="INTERNAL_ERROR: it broke"):
        here.launch()
    here.delete(HOST)
    assert here.launch(attempt=2).external_id == f"{HOST}-2"
    here.delete(f"{HOST}-2")


@pytest.mark.parametrize("late", [True, False])
def test_quota(tmp_path: Path, late: bool) -> None:
    """GC-5 (not repeated): the metric is told, at once or by the operation; the launch waits."""
    with at_simulator(tmp_path, section(), quotas={"N2_CPUS": 1}, late_quotas=late) as here:
        with pytest.raises(CloudQuota, match=r"(?s)(N2_CPUS|n2_cpus).*; ask for more"):
            here.launch()
        here.delete(HOST)


@pytest.mark.parametrize("late", [True, False])
@pytest.mark.parametrize("details", [True, False])
def test_no_capacity_here(tmp_path: Path, caplog: pytest.LogCaptureFixture, late: bool, details: bool) -> None:
    """GC-5 (not repeated): the next zone is tried in the same attempt; the next node leaves the first zone alone."""
    full = ZoneCapacity(zone=ZONES[0], late=late, details=details)
    with at_simulator(tmp_path, TWO_ZONES, capacity=[full]) as here:
        with caplog.at_level(logging.INFO):
            found = here.launch()
        assert (found.az, found.external_id) == (ZONES[1], f"{ZONES[1]}/{HOST}-1-1")
        assert f"No capacity for n2-standard-2 in {ZONES[0]}, trying n2-standard-2 in {ZONES[1]}: " in caplog.text
        here.delete(found.external_id)
        inserts = here.calls("instances.insert")
        found = here.launch(attempt=2)
        assert found.az == ZONES[1]
        assert here.calls("instances.insert") == inserts + 1
        here.delete(found.external_id)


def test_all_places_in_order(tmp_path: Path) -> None:
    """Spot instances first: types, and the zones of each; then standard ones."""
    data = section({"instance-type": ["n2-standard-2", "n2-standard-4"], "use-spot": True, "spot-fallback": True})
    with at_simulator(tmp_path, {**data, "zone": ZONES}, capacity=[ZoneCapacity(spot=True, late=False)]) as here:
        found = here.launch()
        assert (found.az, found.external_id) == (ZONES[0], f"{ZONES[0]}/{HOST}-1-4")
        assert here.calls("instances.insert") == 5
        here.delete(found.external_id)


def test_no_capacity_anywhere(tmp_path: Path) -> None:
    """A failed attempt, in the words of Google."""
    with at_simulator(tmp_path, TWO_ZONES, capacity=[ZoneCapacity()]) as here:
        with pytest.raises(CloudNoCapacityLater, match="ZONE_RESOURCE_POOL_EXHAUSTED"):
            here.launch()
        here.delete(f"{ZONES[1]}/{HOST}-1-1")
        assert not here.contents().get("instances")


def test_nodes_of_a_request_are_in_one_zone(tmp_path: Path) -> None:
    """N-7: the first node that is made decides; a zone without capacity is left only before."""
    with at_simulator(tmp_path, TWO_ZONES, capacity=[ZoneCapacity(zone=ZONES[0])]) as here:
        request = NodeRequest("100-1")
        request.node_types = ["small", "small"]
        label = label_of(here.adapter.config)

        def launch(node_id: str, request: NodeRequest | None, az: str | None = None) -> Any:
            metadata = for_node(node_id, "main", PROVIDER)
            make = here.adapter.getCreateStateMachine
            return drive(make(f"np{node_id}", label, None, metadata, request, az, LOG))

        found = [launch("1", request)]
        here.simulator.change(capacity=[])
        here.adapter.instances.places._rest_until.clear()
        found += [launch("2", request), launch("3", None, ZONES[1])]
        assert [one.az for one in found] == [ZONES[1]] * 3
        for one in found:
            here.delete(one.external_id)


def test_type_that_a_zone_does_not_have(tmp_path: Path) -> None:
    """c2 is not in zone f: it is never asked for it there."""
    data = section({"instance-type": "c2-standard-4"}, zone=["us-central1-f", "us-central1-a"])
    with at_simulator(tmp_path, data) as here:
        found = here.launch()
        assert found.az == "us-central1-a"
        assert here.calls("instances.insert") == 1
        here.delete(found.external_id)


def test_type_that_nobody_has(tmp_path: Path) -> None:
    with (
        at_simulator(tmp_path, section({"instance-type": "n9-mega"})) as here,
        pytest.raises(RuntimeConfigurationException, match="no machine type 'n9-mega' in us-central1-a; correct"),
    ):
        here.adapter.getQuotaForLabel(label_of(here.adapter.config))


def test_instance_of_somebody_else_is_left_alone(here: Here) -> None:
    """CM-8: an instance of the name that is not ours is neither adopted nor deleted."""
    with here.simulator.cloud() as cloud:
        cloud.add_instance(HOST, {"nodepool_provider_name": "other"})
    with pytest.raises(CloudRefused, match="alreadyExists"):
        here.launch()
    assert here.contents()["instances"] == 1


def test_throttled(here: Here) -> None:
    """CM-5 (not repeated): 403 rateLimitExceeded and 429 are sat out."""
    here.simulator.change(
        errors=[
            GceErrorRule(operation="instances.insert", kind="403", reason="rateLimitExceeded", retry_after=0, count=1),
            GceErrorRule(operation="instances.insert", kind="429", retry_after=0, count=1),
        ]
    )
    assert here.launch().external_id == HOST
    assert here.calls("instances.insert") == 3
    here.delete(HOST)


@pytest.mark.parametrize("warnings", [False, True])
def test_several_zones(tmp_path: Path, warnings: bool) -> None:
    """One list for all zones; a zone that does not answer keeps what it had, whichever way the list tells it."""
    with at_simulator(tmp_path, TWO_ZONES, unreachable_warnings=warnings) as here:
        found = here.launch()
        assert found.external_id == f"{ZONES[0]}/{HOST}"
        assert (here.calls("instances.list"), here.calls("globalOperations.aggregatedList")) == (0, 0)
        here.simulator.change(unreachable=[ZONES[0]])
        assert [one.external_id for one in here.adapter.listInstances()] == [found.external_id]
        here.simulator.change(unreachable=[])
        here.delete(found.external_id)
        assert not here.contents().get("instances")


def test_node_of_an_older_configuration(tmp_path: Path) -> None:
    """CM-8: with one zone the id is the name; it is found when there are several."""
    with at_simulator(tmp_path, section(zone=[ZONES[1], ZONES[0]])) as here:
        found = here.launch()
        here.adapter.listInstances()
        assert found.external_id == f"{ZONES[1]}/{HOST}"
        here.delete(HOST)
        assert not here.contents().get("instances")


def test_gone_already(here: Here) -> None:
    """GC-9 (not repeated): 404 is success."""
    here.delete(HOST)
    here.delete(None)


def test_spot_instance_that_is_taken_away_at_once(tmp_path: Path) -> None:
    """Google says UNSUPPORTED_OPERATION then, as the authors of SkyPilot have seen: another place is tried."""
    data = section({"use-spot": True, "spot-fallback": True})
    rule = GceBootRule(code="UNSUPPORTED_OPERATION", message="The operation is unsupported.", status=400, count=1)
    with at_simulator(tmp_path, data, boots=[rule]) as here:
        found = here.launch()
        assert found.external_id == f"{HOST}-1-1"
        here.delete(found.external_id)


def test_preempted_while_it_is_launched(tmp_path: Path) -> None:
    """It counts as lack of capacity, and names the reason; a standard instance was stopped by somebody."""
    with at_simulator(tmp_path, section({"use-spot": True})) as here:
        found = here.launch()
        record = here.adapter.client.instance(ZONES[0], HOST)._replace(status="STOPPING")
        machine = here.creation()
        machine.advance()
        with pytest.raises(CapacityException, match="np0000000042 is STOPPING: it was preempted by Google, or"):
            machine.seen(record)
        machine._places[0] = machine._places[0]._replace(spot=False)
        with pytest.raises(LaunchStatusException, match="somebody stopped or deleted it"):
            machine.seen(record)
        here.delete(found.external_id)


def test_preempted_after_it_was_given_out(tmp_path: Path) -> None:
    """The reason is known as soon as the sweep has asked, in the words of Google; of others there is none."""
    with at_simulator(tmp_path, section({"use-spot": True})) as here:
        here.launch()
        list(here.adapter.listResources())
        assert here.adapter.whyLost(HOST) is None
        with here.simulator.cloud() as cloud:
            (one,) = cloud.instances.all()
            cloud.instances.preempt(one)
        for _ in range(2):
            list(here.adapter.listResources())
        reason = here.adapter.whyLost(HOST)
        assert reason is not None
        assert (reason[0], "preempted" in reason[1]) == ("compute.instances.preempted", True)
        assert here.adapter.whyLost("np0000000043") is None
        here.delete(HOST)


def test_too_many_operations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """GC-5 (not repeated): CONCURRENT_OPERATIONS_QUOTA_EXCEEDED is sat out, and no attempt is spent."""
    monkeypatch.setattr(instances, "CONCURRENT_PAUSE", Backoff(0.1, 0.2))
    with at_simulator(tmp_path, section(), concurrent_operations=0) as here:
        machine = here.creation()
        put_off = machine.put_off

        def relax(error: Exception) -> float | None:
            here.simulator.change(concurrent_operations=None)
            pause: float | None = put_off(error)
            return pause

        machine.put_off = relax
        found = drive(machine)
        assert found is not None
        assert machine._crowded == 1
        here.delete(found.external_id)


# -- quota --


def test_limits(tmp_path: Path) -> None:
    """GC-7 (today): the quota of the family, of all regions, addresses and disks; what a label and an instance use."""
    quotas = {"N2_CPUS": 16, "IN_USE_ADDRESSES": 8, "INSTANCES": 24, "DISKS_TOTAL_GB": 4096}
    with at_simulator(tmp_path, section(), quotas=quotas, project_quotas={"CPUS_ALL_REGIONS": 32}) as here:
        need = here.adapter.getQuotaForLabel(label_of(here.adapter.config)).get_resources()
        named = {"N2_CPUS": 2, "CPUS_ALL_REGIONS": 2, "IN_USE_ADDRESSES": 1, "DISKS_TOTAL_GB": 10}
        assert need == {"instances": 1, "cores": 2, "ram": 8192, **named}
        assert here.adapter.getQuotaLimits().get_resources() == {
            "instances": 24,
            "N2_CPUS": 16,
            "CPUS_ALL_REGIONS": 32,
            "IN_USE_ADDRESSES": 8,
            "DISKS_TOTAL_GB": 4096,
        }
        assert here.launch().getQuotaInformation().get_resources() == need
        (listed,) = here.adapter.listInstances()
        assert listed.getQuotaInformation().get_resources() == {
            key: value for key, value in need.items() if key != "DISKS_TOTAL_GB"
        }
        here.delete(HOST)


def test_spot_has_a_quota_of_its_own(tmp_path: Path) -> None:
    """Where it is more than 0; else spot instances count as the others."""
    for quota, name in ((6, "PREEMPTIBLE_CPUS"), (0, "N2_CPUS")):
        with at_simulator(tmp_path, section({"use-spot": True}), quotas={"PREEMPTIBLE_CPUS": quota}) as here:
            need = here.adapter.getQuotaForLabel(label_of(here.adapter.config)).get_resources()
            assert need[name] == 2
            assert ("PREEMPTIBLE_CPUS" in need) is (name == "PREEMPTIBLE_CPUS")


# -- images --


def test_new_image_of_a_family(here: Here, caplog: pytest.LogCaptureFixture) -> None:
    """GC-4 (not repeated): what is remembered has an age; a refusal ends it."""
    label = label_of(here.adapter.config)
    before = here.adapter.facts.image_link(label, None)
    assert before.endswith("global/images/debian-12-bookworm-v20261101")
    here.adapter.facts.image_link(label, None)
    assert here.calls("images.getFromFamily") == 1
    here.simulator.change(errors=[GceErrorRule(operation="instances.insert", kind="400", count=1)])
    with pytest.raises(CloudRefused):
        here.launch()
    here.launch(attempt=2)
    assert here.calls("images.getFromFamily") == 2
    here.delete(f"{HOST}-2")


def test_no_such_family(tmp_path: Path) -> None:
    image = {"name": "debian", "image-project": "debian-cloud", "image-family": "debian-99", "username": "zuul"}
    with (
        at_simulator(tmp_path, section(cloud_images=[image])) as here,
        pytest.raises(CloudSetup, match="correct image-project or image-family of cloud image 'debian'"),
    ):
        here.launch()


def test_console(tmp_path: Path) -> None:
    """Of labels that want it."""
    with at_simulator(tmp_path, section({"console-log": True})) as here:
        label = label_of(here.adapter.config)
        assert here.adapter.getConsoleLog(label, HOST) is None
        here.launch()
        console = here.adapter.getConsoleLog(label, HOST)
        assert console
        label.console_log = False
        assert here.adapter.getConsoleLog(label, HOST) is None
        here.delete(HOST)
