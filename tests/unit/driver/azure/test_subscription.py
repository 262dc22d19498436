# SPDX-License-Identifier: Apache-2.0
"""The adapter at a simulated subscription: what tests/clouds does not ask for, and what the documentation says."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from nodepool.driver.azure.client import ArmApi
from nodepool.driver.azure.config import MIB
from nodepool.driver.framework.cloud_errors import (
    CloudNoCapacityLater,
    CloudSetup,
)
from nodepool.exceptions import LaunchStatusException
from simulators.azure import ArmErrorRule, VmBootRule
from tests.support.provider_sections import label_of
from tests.support.tables import driver_table
from tests.support.vhd import fixed_footer
from tests.unit.driver.azure.support import Here, at_simulator, section
from tests.unit.driver.simulated_adapter import HOST, drive

# -- launches --


def test_addresses_of_one_node(tmp_path: Path) -> None:
    """AZ-7, O-8: who waits for one VM asks for it and its addresses alone, when a list has shown it."""
    with at_simulator(tmp_path, section(pool={"public-ipv6": True}), boot_seconds=(0, 0)) as here:
        with here.simulator.cloud() as cloud:
            for number in range(30):
                cloud.add_vm(f"other{number}")
        here.simulator.change(boot_seconds=(0.5, 0.5))
        found = here.launch()
        assert all((found.public_ipv4, found.public_ipv6, found.private_ipv4, found.private_ipv6))
        here.delete(HOST.upper())
        calls = [f"{kind}.{call}" for kind in ("networkInterfaces", "publicIPAddresses") for call in ("get", "list")]
        assert [here.calls(call) for call in calls] == [1, 0, 2, 0]


def test_evicted(tmp_path: Path) -> None:
    """The driver knows which VMs were spot VMs; Azure does not say why one is absent. A launch lacks capacity then."""
    with at_simulator(tmp_path, section({"use-spot": True})) as here:
        assert (here.adapter.whyLost(HOST) or ("",))[0] == "NotFound"
        creation = here.creation()
        drive(creation)
        with pytest.raises(CloudNoCapacityLater, match="evicted"):
            creation.seen(here.adapter.client.vm(HOST)._replace(status="Deleting"))
        assert (here.adapter.whyLost(HOST.upper()) or ("",))[0] == "SpotEviction"
        assert here.adapter.whyLost({"odd": 1}) is None
        here.delete(HOST)


def test_image_of_a_filter(tmp_path: Path) -> None:
    """AZ-6: name, location and tags; the last one by name. Without one the launch says what to correct."""
    image = {"name": "debian", "username": "zuul", "key": "k", "image-filter": {"tags": {"release": 12}}}
    with at_simulator(tmp_path, section(cloud_images=[image])) as here:
        label = label_of(here.adapter.config)
        with pytest.raises(CloudSetup, match=r"with tags=.* correct image-filter of cloud image 'debian'"):
            here.adapter.facts.image_reference(label, None)
        with here.simulator.cloud() as cloud:
            for name in ("b", "c", "a"):
                cloud.add_image(name, {"release": "12"})
            cloud.add_image("d", {"release": "12"}).properties["provisioningState"] = "Failed"
            cloud.add_image("e", {"release": "13"})
        assert here.adapter.facts.image_reference(label, None)["id"].endswith("/images/c")
        with pytest.raises(CloudSetup, match="NotFound: The entity was not found"):
            here.launch(image="vanished")


# -- quota --


def test_limits(tmp_path: Path) -> None:
    """AZ-3, AZ-9, Q-4: cores of regular VMs and of the family, spot cores, addresses; what a label and a VM use."""
    data = section({"hardware-profile": {"vm-size": "standard_d2S_v5"}, "use-spot": True, "spot-fallback": True})
    quotas = {"cores": 10, "standardDSv5Family": 8, "lowPriorityCores": 3, "virtualMachines": 7}
    with at_simulator(tmp_path, data, quotas=quotas) as here:
        need = here.adapter.getQuotaForLabel(label_of(here.adapter.config)).get_resources()
        spot = {"lowPriorityCores": 2, "StandardSkuPublicIPAddresses": 1}
        assert need == {"cores": 2, "instances": 1, "ram": 8192, **spot}
        assert here.adapter.getQuotaLimits().get_resources() == {
            **{name: quotas[name] for name in ("standardDSv5Family", "lowPriorityCores")},
            "instances": 7,
            "regularCores": 10,
            "StandardSkuPublicIPAddresses": 10000,
        }
        here.launch()
        (instance,) = here.adapter.listInstances()
        assert instance.getQuotaInformation().get_resources() == need
        here.delete(HOST)


def test_limits_that_are_not_known(here: Here) -> None:
    """Q-4: without them there is what Azure refuses."""
    here.simulator.change(denied=["usages.*"])
    assert here.adapter.getQuotaLimits().quota["compute"]["instances"] == math.inf
    assert here.adapter.getQuotaLimits().default == math.inf


# -- doc/source/drivers/azure --

ROOT = Path(__file__).parents[4]
PAGES = ROOT / "doc/source/drivers/azure"


def test_permissions_are_those_of_the_calls(tmp_path: Path) -> None:
    """The least that the credentials need: no action is missing in the role, and none is too many."""
    image = {"name": "debian", "username": "zuul", "key": "k", "image-filter": {"name": "debian-12"}}
    data = section(cloud_images=[image], diskimages=[{"name": "fedora"}], label={"console-log": True})
    with at_simulator(tmp_path, data, nic_reserved_seconds=0, boot_seconds=(0, 0)) as here:
        assert all(found.ok for found in here.adapter.preflight())
        for attempt, name in ((1, HOST), (2, f"{HOST}-2")):
            here.simulator.change(boots=[VmBootRule(count=1)])
            with pytest.raises(LaunchStatusException):
                here.launch(attempt=attempt)
            assert here.adapter.getConsoleLog(here.adapter.config.pools["main"].labels["small"], name)
            here.delete(name)
            # As the framework does it: an address can be deleted when its interface is absent.
            for _ in range(2):
                for resource in here.adapter.listResources():
                    if resource.type != "image":
                        here.adapter.deleteResource(resource)
            # What is asked for when the operation is not known.
            rule = ArmErrorRule(operation="virtualMachines.put", kind="drop", after=True, count=1)
            here.simulator.change(errors=[rule])
        file = tmp_path / "image.vhd"
        file.write_bytes(bytes(MIB) + fixed_footer(MIB))
        here.adapter.deleteImage(here.adapter.uploadImage(here.adapter.config.diskimages["fedora"], "f-1", str(file)))
        calls = dict(here.simulator.state()["calls"])
        assert here.contents() == {}
    rights = driver_table("azure", "rights")
    needed = [*rights["demanded"], *(right for call in calls for right in rights["calls"][call])]
    assert set(re.findall(r'"(Microsoft\.[\w/]+)"', (PAGES / "behaviour.rst").read_text())) == set(needed)


def test_codes_are_those_of_the_code() -> None:
    table = (PAGES / "troubleshooting.rst").read_text(encoding="utf-8").partition("What Azure refuses")[2]
    cells = re.findall(r"^\* (``.*?): [A-Z]", table, re.MULTILINE)
    for cell, codes in zip(
        cells,
        [ArmApi.quota | {"OperationNotAllowed"}, ArmApi.capacity, ArmApi.throttled_codes, ArmApi.login],
        strict=True,
    ):
        assert set(re.findall(r"``(\w+)``", cell)) <= codes
