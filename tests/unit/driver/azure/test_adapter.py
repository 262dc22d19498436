# SPDX-License-Identifier: Apache-2.0
"""The adapter at a simulated subscription: launches, capacity, lists, images."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest

from nodepool.driver.azure.machines import disk_name
from nodepool.driver.framework import places
from nodepool.driver.framework.cloud_errors import (
    CloudAway,
    CloudNoCapacity,
    CloudNoCapacityLater,
    CloudQuota,
    CloudRefused,
    CloudSetup,
    LoginRefused,
)
from nodepool.driver.statemachine import Instance
from nodepool.driver.statemachine.instance import for_node
from nodepool.exceptions import LaunchStatusException
from nodepool.model.request import NodeRequest
from simulators.azure import ArmErrorRule, SizeCapacity, VmBootRule
from tests.support.wait import wait_for
from tests.unit.driver.azure.support import METADATA, PROVIDER, Here, at_simulator, label_of, section
from tests.unit.driver.simulated_adapter import HOST, LOG, NODE, drive

# -- launches --


def test_launch_and_delete(here: Here) -> None:
    """AZ-4, AZ-5, AZ-7, AZ-8, AZ-11: one PUT makes everything, one DELETE takes it away."""
    instance = here.launch()
    assert (instance.external_id, instance.cloud, instance.region, instance.az) == (HOST, "Azure", "northeurope", "")
    assert instance.public_ipv4 is not None
    assert instance.interface_ip == instance.public_ipv4 != instance.private_ipv4
    assert instance.metadata == METADATA
    assert here.contents() == {"vms": 1, "nics": 1, "addresses": 1, "disks": 1}
    here.delete(HOST)
    assert here.contents() == {}
    assert (here.calls("virtualMachines.put"), here.calls("virtualMachines.delete")) == (1, 1)
    assert here.calls("networkInterfaces.delete") == 0


def test_tags_on_all(here: Here) -> None:
    """CM-1, AZ-5 (today): VM, interface and address have the tags; the disk has a name that says it."""
    here.launch()
    with here.simulator.cloud() as cloud:
        tags = [next(cloud.resources.of(kind)).tags for kind in ("virtualMachines", "networkInterfaces")]
        tags.append(next(cloud.resources.of("publicIPAddresses")).tags)
        assert cloud.resources.find("disks", disk_name(HOST, PROVIDER)) is not None
    assert tags == [METADATA] * 3
    here.delete(HOST)


def test_other_case(here: Here) -> None:
    """AZ-7 (today): Azure changes the case of ids; the simulator does so from answer to answer."""
    assert here.launch().public_ipv4
    here.delete(HOST.upper())
    assert here.contents() == {}


def test_two_families(tmp_path: Path) -> None:
    """AZ-7, AZ-8: all addresses are waited for."""
    with at_simulator(tmp_path, section(pool={"public-ipv6": True})) as here:
        found = here.launch()
        addresses = (found.public_ipv4, found.public_ipv6, found.private_ipv4, found.private_ipv6)
        assert all(addresses)
        assert len(set(addresses)) == 4
        here.delete(HOST)


def test_private_addresses_only(tmp_path: Path) -> None:
    """AZ-8: without public addresses nobody lists them."""
    with at_simulator(tmp_path, section(pool={"public-ipv4": False})) as here:
        found = here.launch()
        assert found.interface_ip == found.private_ipv4
        assert found.public_ipv4 is None
        assert here.calls("publicIPAddresses.list") == 0
        here.delete(HOST)


@pytest.mark.parametrize("fact", ["image_reference", "subnet_id"])
def test_nothing_is_known_before(here: Here, monkeypatch: pytest.MonkeyPatch, fact: str) -> None:
    """CM-8: no answer to what is asked before the order: nothing was made, and there is nothing to look for."""

    def away(*_: Any) -> None:
        raise CloudAway("no answer")

    monkeypatch.setattr(here.adapter.machines.facts, fact, away)
    with pytest.raises(CloudAway, match="no answer") as caught:
        here.launch()
    assert not caught.value.maybe_done
    assert not list(here.adapter.unansweredCreations())
    assert here.calls("virtualMachines.put") == 0


@pytest.mark.parametrize("kind", ["drop", "500", "html"])
def test_lost_answer(here: Here, kind: str) -> None:
    """CM-8: the order is sent again under the same name, and Azure does not make a second VM."""
    here.simulator.change(errors=[ArmErrorRule(operation="virtualMachines.put", kind=kind, after=True, count=1)])
    assert here.launch().external_id == HOST
    assert here.simulator.state()["events"]["VMs made"] == 1
    assert here.calls("virtualMachines.put") == 2
    here.delete(HOST)


def test_vm_of_somebody_else_is_left_alone(here: Here) -> None:
    """CM-8: a VM of the name that is not ours is neither changed nor adopted."""
    with here.simulator.cloud() as cloud:
        cloud.add_vm(HOST, {"nodepool_node_id": NODE, "nodepool_provider_name": "other"})
    with pytest.raises(CloudRefused, match="PreconditionFailed"):
        here.launch()
    with here.simulator.cloud() as cloud:
        assert cloud.resources.get("virtualMachines", HOST).tags["nodepool_provider_name"] == "other"


def test_next_attempt_has_another_name(here: Here) -> None:
    """CM-8 (today): nothing of an attempt gets in the way of the next one."""
    here.simulator.change(boots=[VmBootRule(count=1)])
    with pytest.raises(LaunchStatusException, match="OSProvisioningTimedOut"):
        here.launch()
    here.delete(HOST)
    # Its interface is still there, and reserved.
    assert here.contents() == {"nics": 1, "addresses": 1, "disks": 1}
    assert here.launch(attempt=2).external_id == f"{HOST}-2"
    here.delete(f"{HOST}-2")


def test_new_vm_is_missing_in_lists(tmp_path: Path) -> None:
    """CM-7 (not repeated): lists are late; that is no reason to give it up, or to think that it is gone."""
    with at_simulator(tmp_path, section(), hidden_rate=1.0, hidden_seconds=(1.0, 1.0)) as here:
        assert here.launch().external_id == HOST
        here.delete(HOST)
        assert here.contents() == {}


def test_failed_with_the_words_of_azure(here: Here) -> None:
    """AZ-7: why a VM failed is asked for once."""
    here.simulator.change(boots=[VmBootRule(code="OSProvisioningInternalError", message="swap file", nested=True)])
    with pytest.raises(LaunchStatusException, match="OSProvisioningInternalError: swap file"):
        here.launch()
    assert here.calls("operations.get") == 1
    here.delete(HOST)


def test_failed_and_nobody_knows_the_operation(here: Here) -> None:
    """AZ-7: after a lost answer the states of the VM say it."""
    here.simulator.change(
        boots=[VmBootRule(code="OSProvisioningTimedOut", message="too slow")],
        errors=[ArmErrorRule(operation="virtualMachines.put", kind="drop", after=True, count=1)],
    )
    with pytest.raises(LaunchStatusException, match="OSProvisioningTimedOut: too slow"):
        here.launch()
    assert here.calls("virtualMachines.instanceview") == 1
    here.delete(HOST)


def test_evicted_while_it_boots(tmp_path: Path) -> None:
    """A spot VM that Azure takes away is a lack of capacity."""
    with at_simulator(tmp_path, section({"use-spot": True}), boot_seconds=(60, 60)) as here:
        creation = here.creation()
        creation.advance()
        wait_for("it is made", lambda: here.contents().get("vms"))
        with here.simulator.cloud() as cloud:
            cloud.machines.evict(cloud.resources.get("virtualMachines", HOST))
        with pytest.raises(LaunchStatusException, match=r"evicted|is gone"):
            drive(creation)


# -- quota and capacity --


@pytest.mark.parametrize("name", ["cores", "standardBSFamily", "virtualMachines", "StandardSkuPublicIPAddresses"])
def test_quota(here: Here, name: str) -> None:
    """AZ-10 (not repeated): it waits, and is no failed attempt."""
    here.simulator.change(quotas={name: 0})
    with pytest.raises(CloudQuota, match="ask for more"):
        here.launch()


def test_quota_that_shows_late(here: Here) -> None:
    """AZ-10: in the operation."""
    text = "Operation results in exceeding approved standardBSFamily Cores quota. Current Limit: 4"
    here.simulator.change(boots=[VmBootRule(code="OperationNotAllowed", message=text)])
    with pytest.raises(CloudQuota, match="Current Limit: 4"):
        here.launch()
    here.delete(HOST)


TWO_ZONES = {"availability-zones": ["1", "2"]}
PLACES: dict[str, Any] = {
    "label": {
        "hardware-profile": {"vm-size": ["Standard_B1s", "Standard_B2ms"]},
        "use-spot": True,
        "spot-fallback": True,
    },
    "pool": TWO_ZONES,
}


def test_next_place(tmp_path: Path) -> None:
    """AZ-10 (not repeated): zones, then sizes, then regular VMs; what had none is left alone by the next launch."""
    data = section(**PLACES)
    rooms = [SizeCapacity(spot=True), SizeCapacity(size="*B1s", zone="1")]
    with at_simulator(tmp_path, data, capacity=rooms, by_turns=False) as here:
        assert here.launch().az == "2"
        assert here.calls("virtualMachines.put") == 6
        here.delete(HOST)
        assert here.launch(attempt=2).az == "2"
        assert here.calls("virtualMachines.put") == 7
        here.delete(f"{HOST}-2")


def launch_of(here: Here, node_id: str, request: NodeRequest | None, az: str | None = None) -> Instance:
    """The instance of a node of a request."""
    label = label_of(here.adapter.config)
    make = here.adapter.getCreateStateMachine
    found = drive(make(f"np{node_id}", label, None, for_node(node_id, "main", PROVIDER), request, az, LOG))
    assert found is not None
    return found


def test_nodes_of_a_request_are_in_one_zone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """N-7: the first node that is made decides, or a ready one; a zone without capacity is left only before."""
    monkeypatch.setattr(places, "REST_SECONDS", 0.0)
    data = section({"hardware-profile": {"vm-size": ["Standard_B1s", "Standard_B2ms"]}}, TWO_ZONES)
    with at_simulator(tmp_path, data, capacity=[SizeCapacity(zone="1")]) as here:
        request = NodeRequest("100-1")
        request.node_types = ["small", "small", "small"]
        found = [launch_of(here, "1", request)]
        here.simulator.change(capacity=[SizeCapacity(size="*B1s", zone="2", room=1)])
        found += [launch_of(here, "2", request), launch_of(here, "3", None, "2")]
        assert [one.az for one in found] == ["2"] * 3
        for one in found:
            here.delete(one.external_id)


def test_no_place(here: Here) -> None:
    here.simulator.change(capacity=[SizeCapacity()])
    with pytest.raises(CloudNoCapacity, match="AllocationFailed"):
        here.launch()
    assert here.contents() == {}


def test_capacity_that_shows_late(tmp_path: Path) -> None:
    """AZ-10: the operation says so; the next place is tried, and no attempt is spent."""
    data = section(pool=TWO_ZONES)
    with at_simulator(tmp_path, data, capacity=[SizeCapacity(zone="1", late=True)]) as here:
        found = here.launch()
        assert (found.external_id, found.az) == (f"{HOST}-1-1", "2")
        assert here.contents()["vms"] == 1
        here.delete(found.external_id)
        assert here.launch(attempt=2).az == "2"
        here.delete(f"{HOST}-2")


def test_no_capacity_anywhere_late(here: Here) -> None:
    """AZ-10: without another place the attempt fails, in the words of Azure."""
    here.simulator.change(capacity=[SizeCapacity(late=True)])
    with pytest.raises(CloudNoCapacityLater, match="AllocationFailed"):
        here.launch()
    here.delete(HOST)


def test_throttled(here: Here) -> None:
    """CM-5 (not repeated): 429 is sat out."""
    here.simulator.change(errors=[ArmErrorRule(operation="virtualMachines.put", kind="429", retry_after=0, count=2)])
    assert here.launch().external_id == HOST
    assert here.calls("virtualMachines.put") == 3
    here.delete(HOST)


# -- lists --


def test_one_node_among_many(here: Here) -> None:
    """O-8: who waits for one VM asks for it and its addresses alone, when a list has shown it; so does a deletion."""
    here.simulator.change(boot_seconds=(0, 0))
    with here.simulator.cloud() as cloud:
        for number in range(30):
            cloud.add_vm(f"other{number}")
    here.simulator.change(boot_seconds=(0.5, 0.5), delete_seconds=(0.5, 0.5))
    assert here.launch().public_ipv4
    here.delete(HOST)
    assert here.calls("virtualMachines.get") > 0
    kinds = ("networkInterfaces", "publicIPAddresses")
    assert [here.calls(f"{kind}.{call}") for kind in kinds for call in ("get", "list")] == [1, 0, 1, 0]
    assert here.contents()["vms"] == 30


def test_list_beside_a_look(here: Here) -> None:
    """AZ-7: the sweep may list while another thread looks at a VM: what that one has found out is not lost."""
    machines = here.adapter.machines
    table = machines._addresses
    here.launch()
    assert len(table) == 1
    here.delete(HOST)
    assert machines.list_instances(None) == []
    assert machines._addresses is table
    assert not table


def test_public_addresses_of_one_node(tmp_path: Path) -> None:
    """AZ-7: each public address is asked for by itself."""
    pool = {"public-ipv4": True, "ipv6": True, "public-ipv6": True}
    with at_simulator(tmp_path, section(pool=pool), boot_seconds=(0.5, 0.5)) as here:
        found = here.launch()
        assert all([found.public_ipv4, found.public_ipv6, found.private_ipv4, found.private_ipv6])
        assert (here.calls("publicIPAddresses.get"), here.calls("publicIPAddresses.list")) == (2, 0)
        here.delete(HOST)


def test_list_instances(here: Here) -> None:
    """CM-4, Q-4: as they are now, also those of others, over all pages."""
    here.simulator.change(page_limit=2)
    with here.simulator.cloud() as cloud:
        for number in range(5):
            cloud.add_vm(f"web-{number}")
    assert len(here.adapter.listInstances()) == 5
    # Three pages, and an empty one between them.
    assert here.calls("virtualMachines.list") == 4


# -- images --


def test_image_of_a_filter(tmp_path: Path) -> None:
    """AZ-6: name, location and tags; the last one by name; none is told."""
    image = {"name": "debian", "username": "zuul", "key": "k", "image-filter": {"tags": {"release": 12}}}
    with at_simulator(tmp_path, section(cloud_images=[image])) as here:
        label = label_of(here.adapter.config)
        with pytest.raises(CloudSetup, match="correct image-filter of cloud image 'debian'"):
            here.adapter.facts.image_reference(label, None)
        with here.simulator.cloud() as cloud:
            for name in ("b", "c", "a"):
                cloud.add_image(name, {"release": "12"})
            cloud.add_image("d", {"release": "12"}).properties["provisioningState"] = "Failed"
            cloud.add_image("e", {"release": "13"})
        assert here.adapter.facts.image_reference(label, None)["id"].endswith("/images/c")
        assert here.launch().external_id == HOST
        here.delete(HOST)


def test_image_of_an_upload(here: Here) -> None:
    """AZ-6: by its name, remembered until a launch is refused."""
    assert here.launch(image="debian-12").external_id == HOST
    here.delete(HOST)
    with pytest.raises(CloudSetup, match="NotFound: The entity was not found"):
        here.launch(attempt=2, image="vanished")


# -- the login --


def test_token_that_ends(here: Here) -> None:
    """AZ-1: a token that Azure does not accept any more is replaced within the call."""
    here.launch()
    with here.simulator.cloud():
        here.simulator.application.tokens.end_all()
    here.delete(HOST)
    assert here.calls("tokens.post") == 2


def test_wrong_secret(tmp_path: Path) -> None:
    """AZ-1: nothing was made, and that is known."""
    with at_simulator(tmp_path, section()) as here:
        here.simulator.change(client_secret="other")
        with pytest.raises(LoginRefused, match="AADSTS7000215"):
            here.launch()


# -- VMs that are gone --


def test_why_a_vm_is_gone(tmp_path: Path) -> None:
    """The driver knows which VMs were spot VMs; Azure does not tell why one is gone."""
    with at_simulator(tmp_path, section({"use-spot": True})) as here:
        assert here.adapter.whyLost(HOST) == ("NotFound", ANY)
        here.launch()
        assert here.adapter.whyLost(HOST.upper()) == ("SpotEviction", ANY)
        assert here.adapter.whyLost({"odd": 1}) is None
        here.delete(HOST)
