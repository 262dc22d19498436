# SPDX-License-Identifier: Apache-2.0
"""The adapter at a simulated region: launches, deletions, quota."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from nodepool.driver.framework.cloud_errors import (
    CloudAway,
    CloudNoCapacity,
    CloudNoCapacityLater,
    CloudQuota,
    CloudRefused,
    CloudSetup,
)
from nodepool.driver.statemachine.instance import know_installation, node_id_of, others
from nodepool.exceptions import LaunchStatusException, RuntimeConfigurationException
from simulators.ibmvpc import ProfileCapacity, VpcBootRule, VpcErrorRule
from tests.support.wait import wait_for
from tests.unit.driver.ibmvpc.region import Here, at_simulator, section
from tests.unit.driver.ibmvpc.support import METADATA, PROVIDER, label_of
from tests.unit.driver.simulated_adapter import HOST, drive

PUBLIC = {"public-ipv4": True}
ZONES: dict[str, Any] = {"zone": ["us-south-1", "us-south-2"], "subnet": ["ci-us-south-1", "ci-us-south-2"]}


# -- launches --


def test_launch_and_delete(here: Here) -> None:
    """IV-4, IV-5, IV-6: one call makes the instance with its volume, one takes both away."""
    found = here.launch()
    assert (found.external_id, found.cloud, found.region, found.az) == (HOST, "IBM", "us-south", "us-south-1")
    assert (found.public_ipv4, found.interface_ip) == (None, found.private_ipv4)
    assert found.private_ipv4
    assert found.metadata == METADATA
    assert here.contents() == {"instances": 1, "volumes": 1}
    here.delete(HOST)
    assert here.contents() == {}
    assert (here.calls("vpc.create_instance"), here.calls("vpc.delete_instance")) == (1, 1)
    assert here.calls("vpc.list_floating_ips") == 0


def test_group_is_made_once(here: Here) -> None:
    """IV-2, IV-3: the resource group of the pool."""
    here.launch()
    here.launch("0000000043")
    assert here.calls("platform.create_resource_group") == 1
    for name in (HOST, "np0000000043"):
        here.delete(name)


@pytest.mark.parametrize("fact", ["subnets", "launch_ids"])
def test_nothing_is_known_before(here: Here, monkeypatch: pytest.MonkeyPatch, fact: str) -> None:
    """CM-8: no answer to what is asked before the order: nothing was made, and there is nothing to look for."""

    def away(*_: Any) -> None:
        raise CloudAway("no answer")

    monkeypatch.setattr(here.adapter.facts, fact, away)
    with pytest.raises(CloudAway, match="no answer") as caught:
        here.launch()
    assert not caught.value.maybe_done
    assert not list(here.adapter.unansweredCreations())
    assert here.calls("vpc.create_instance") == 0


def test_id_is_known_before(here: Here) -> None:
    """CM-8: the name is stored before the call that makes the instance."""
    machine = here.creation()
    assert machine.advance() is None
    assert (machine.external_id, here.calls("vpc.create_instance")) == (HOST, 0)
    drive(machine)
    here.delete(HOST)


@pytest.mark.parametrize("kind", ["drop", "500", "html"])
def test_lost_answer(here: Here, kind: str) -> None:
    """CM-8: the order is sent again under the same name, which is unique: no second instance is made."""
    here.simulator.change(errors=[VpcErrorRule(operation="vpc.create_instance", kind=kind, after=True, count=1)])
    assert here.launch().external_id == HOST
    assert here.contents()["instances"] == 1
    assert here.calls("vpc.create_instance") == 2
    here.delete(HOST)


def test_name_of_somebody_else(here: Here) -> None:
    """CM-8, IV-2: an instance of the name in another group is neither adopted nor deleted."""
    with here.simulator.cloud() as cloud:
        cloud.add_instance(HOST, "np_north_main")
    with pytest.raises(CloudRefused, match="validation_unique_failed"):
        here.launch()
    here.delete(HOST)
    assert here.contents()["instances"] == 1
    assert here.launch(attempt=2).external_id == f"{HOST}-2"
    here.delete(f"{HOST}-2")


def test_name_of_another_installation(here: Here) -> None:
    """D-10: it has a provider, a pool and a node of the same names. Its instance is not adopted."""
    know_installation(("0" * 16,))
    here.launch()
    know_installation(("1" * 16,))
    with pytest.raises(CloudRefused, match="validation_unique_failed"):
        here.launch()
    assert here.contents()["instances"] == 1
    (listed,) = here.adapter.listInstances()
    assert node_id_of(listed.metadata, PROVIDER) is None
    assert others([listed.metadata], PROVIDER) == {"0" * 16: 1}
    know_installation(("0" * 16,))
    here.delete(HOST)


def test_failed_instance(here: Here) -> None:
    """IV-4: with the reason of IBM; the next attempt has a name of its own."""
    here.simulator.change(boots=[VpcBootRule(code="cannot_start_storage", message="no disk", count=1)])
    with pytest.raises(LaunchStatusException, match="np0000000042 is failed: cannot_start_storage: no disk"):
        here.launch()
    here.delete(HOST)
    assert here.launch(attempt=2).external_id == f"{HOST}-2"
    here.delete(f"{HOST}-2")
    assert here.contents() == {}


def test_quota(tmp_path: Path) -> None:
    """CM-6: a quota waits."""
    with (
        at_simulator(tmp_path, section(), quotas={"instances": 0}) as here,
        pytest.raises(CloudQuota, match="over_quota"),
    ):
        here.launch()


def test_what_is_missing(tmp_path: Path) -> None:
    """IV-2: a name of the configuration that the region does not have."""
    with (
        at_simulator(tmp_path, section(subnet="nothing")) as here,
        pytest.raises(CloudSetup, match="no subnet 'nothing'"),
    ):
        here.launch()


# -- capacity --


def test_next_zone(tmp_path: Path) -> None:
    """Capacity that IBM misses after it took the order: the next place, without a failed attempt, for all nodes."""
    with at_simulator(tmp_path, section(**ZONES), capacity=[ProfileCapacity(zone="us-south-1")]) as here:
        found = here.launch()
        assert (found.az, found.external_id) == ("us-south-2", f"{HOST}-1-1")
        # The zone is left alone by the next node.
        assert here.launch("0000000043").external_id == "np0000000043"
        assert here.calls("vpc.create_instance") == 3
        for name in (f"{HOST}-1-1", "np0000000043"):
            here.delete(name)
        assert here.contents() == {}


def test_next_profile(tmp_path: Path) -> None:
    """Profiles after zones."""
    data = section({"profile": ["bx2-4x16", "bx2-2x8"]})
    with at_simulator(tmp_path, data, capacity=[ProfileCapacity(profile="bx2-4x16")]) as here:
        found = here.launch()
        assert found.getQuotaInformation().get_resources() == {"instances": 1, "cores": 2, "ram": 8}
        here.delete(found.external_id)


def test_full_subnet(tmp_path: Path) -> None:
    """IBM refuses at once when a subnet has no more addresses: the next subnet, without a failed attempt."""
    with at_simulator(tmp_path, section(subnet=["small", "ci-us-south-1"])) as here:
        with here.simulator.cloud() as cloud:
            small = cloud.network.add_subnet("small", "us-south-1", "10.241.0.0/29")
            while small.document["available_ipv4_address_count"]:
                cloud.network.take(small)
        assert here.launch().external_id == HOST
        assert here.calls("vpc.create_instance") == 2
        here.delete(HOST)


def test_no_capacity_anywhere(tmp_path: Path) -> None:
    """A failed attempt, in the words of IBM."""
    with at_simulator(tmp_path, section(), capacity=[ProfileCapacity()]) as here:
        with pytest.raises(CloudNoCapacityLater, match="cannot_start_capacity"):
            here.launch()
        here.delete(HOST)


def test_spot_fallback(tmp_path: Path) -> None:
    data = section({"profile": "bxf-2x8", "use-spot": True, "spot-fallback": True})
    with at_simulator(tmp_path, data, capacity=[ProfileCapacity(spot=True)]) as here:
        found = here.launch()
        with here.simulator.cloud() as cloud:
            (instance,) = cloud.resources.of("instances")
            assert instance.document["availability"]["class"] == "standard"
        here.delete(found.external_id)


def test_preempted_during_the_launch(tmp_path: Path) -> None:
    """``stopped_by_preemption`` counts as lack of capacity, with the words of IBM."""
    data = section({"profile": "bxf-2x8", "use-spot": True})
    with at_simulator(
        tmp_path, data, boots=[VpcBootRule(kind="failed", code="stopped_by_preemption", count=1)]
    ) as here:
        with pytest.raises(CloudNoCapacityLater, match="stopped_by_preemption"):
            here.launch()
        here.delete(HOST)


# -- floating IPs --


def test_floating_ip(tmp_path: Path) -> None:
    """IV-4 (today), IV-6: one call makes and binds it; it is kept for the next node, and then one call binds it."""
    with at_simulator(tmp_path, section(pool=PUBLIC)) as here:
        found = here.launch()
        assert found.public_ipv4
        assert found.interface_ip == found.public_ipv4
        here.delete(HOST)
        assert here.contents() == {"floating_ips": 1}
        again = here.launch("0000000043")
        assert again.public_ipv4 == found.public_ipv4
        here.delete("np0000000043")
        assert (here.calls("vpc.create_floating_ip"), here.calls("vpc.update_floating_ip")) == (1, 1)
        assert here.calls("vpc.delete_floating_ip") == 0


def test_none_is_kept(tmp_path: Path) -> None:
    """IV-13: ``floating-ip-pool: 0``: it goes with its node."""
    with at_simulator(tmp_path, section(pool={**PUBLIC, "floating-ip-pool": 0})) as here:
        here.launch()
        here.delete(HOST)
        wait_for("the floating IP to go", lambda: here.contents() == {})


@pytest.mark.parametrize("kind", ["drop", "500"])
def test_lost_answer_of_a_floating_ip(tmp_path: Path, kind: str) -> None:
    """IV-13: never two for one node."""
    with at_simulator(tmp_path, section(pool=PUBLIC)) as here:
        here.simulator.change(errors=[VpcErrorRule(operation="vpc.create_floating_ip", kind=kind, after=True, count=1)])
        assert here.launch().public_ipv4
        assert here.contents()["floating_ips"] == 1
        here.delete(HOST)


def test_pool_without_floating_ips_beside_one_with_them(tmp_path: Path) -> None:
    """Nobody looks for the floating IPs of a pool that has none."""
    data = section()
    data["pools"].append({"name": "other", **PUBLIC})
    with at_simulator(tmp_path, data) as here:
        here.launch()
        here.delete(HOST)
        assert here.calls("vpc.list_floating_ips") == 0


def test_no_more_floating_ips(tmp_path: Path) -> None:
    """CM-6: a quota waits; the instance is deleted."""
    with at_simulator(tmp_path, section(pool=PUBLIC), quotas={"floating_ips": 0}) as here:
        with pytest.raises(CloudQuota, match="creating a floating IP failed: over_quota"):
            here.launch()
        here.delete(HOST)
        assert here.contents() == {}


def test_no_instance_is_made_that_would_get_no_floating_ip(tmp_path: Path) -> None:
    """CM-6: what IBM said of the quota is the reason of later launches, too, until one becomes free."""
    with at_simulator(tmp_path, section(pool=PUBLIC)) as here:
        here.launch()
        here.simulator.change(quotas={"floating_ips": 1})
        for node in ("0000000043", "0000000044"):
            with pytest.raises(CloudQuota, match=r"new floating IP address will put the user over quota.*Quota: 1;"):
                here.launch(node)
        here.delete("np0000000043")
        assert here.calls("vpc.create_instance") == 2
        here.delete(HOST)
        assert here.launch("0000000045").public_ipv4
        here.delete("np0000000045")


def test_floating_ip_in_another_zone(tmp_path: Path) -> None:
    """CM-6: the quota of floating IPs is that of a zone: the next one is tried, and no attempt is spent on it."""
    with at_simulator(tmp_path, section(pool={**PUBLIC, **ZONES})) as here:
        refusal = VpcErrorRule(operation="vpc.create_floating_ip", kind="400", code="over_quota", count=1)
        here.simulator.change(errors=[refusal])
        found = here.launch()
        assert (found.az, bool(found.public_ipv4)) == ("us-south-2", True)
        assert here.calls("vpc.create_instance") == here.calls("vpc.create_floating_ip") == 2
        # The next node is not tried in the first zone.
        assert here.launch("0000000043").az == "us-south-2"
        assert here.calls("vpc.create_instance") == 3
        for name in (found.external_id, "np0000000043"):
            here.delete(name)


def test_no_more_public_addresses(tmp_path: Path) -> None:
    """CM-6: status 409, and not for now only: the launch ends."""
    with at_simulator(tmp_path, section(pool=PUBLIC)) as here:
        refusal = VpcErrorRule(operation="vpc.create_floating_ip", kind="409", code="insufficient_ip_addresses")
        here.simulator.change(errors=[refusal])
        with pytest.raises(CloudNoCapacity, match="creating a floating IP failed: insufficient_ip_addresses"):
            here.launch()
        here.delete(HOST)


# -- losses --


def test_why_lost(here: Here) -> None:
    """Of an instance that somebody else deleted."""
    assert here.adapter.whyLost(HOST) == ("not_found", f"instance {HOST} is gone: somebody deleted it, or IBM did")
    assert here.adapter.whyLost(None) is None


# -- quota --


def test_limits_and_need(tmp_path: Path) -> None:
    """IV-7: from the configuration, and from the profile."""
    with at_simulator(tmp_path, section(quota={"instances": 7})) as here:
        assert here.adapter.getQuotaLimits().quota["compute"]["instances"] == 7
        assert here.adapter.getQuotaLimits().quota["compute"]["cores"] == math.inf
        need = here.adapter.getQuotaForLabel(label_of(here.adapter.config))
        assert need.get_resources() == {"instances": 1, "cores": 2, "ram": 8}


def test_unknown_profile(tmp_path: Path) -> None:
    """Q-14: the label can never work."""
    with (
        at_simulator(tmp_path, section({"profile": "nothing"})) as here,
        pytest.raises(RuntimeConfigurationException, match="no profile 'nothing'"),
    ):
        here.adapter.getQuotaForLabel(label_of(here.adapter.config))
