# SPDX-License-Identifier: Apache-2.0
"""Instances of the simulated region, asked with IBM's own client: its models refuse what does not have IBM's shape."""

from __future__ import annotations

from typing import Any

import pytest
from ibm_vpc.vpc_v1 import FloatingIPTargetVirtualNetworkInterfaceReference

from nodepool.testing.ibmvpc import ProfileCapacity, VpcBootRule, VpcDeleteRule
from tests.unit.testing.ibmvpc.conftest import Caller, Refused


class TestLife:
    def test_all_of_it(self, caller: Caller) -> None:
        """Pending, running, deleting, gone; with address, boot volume and what it was made of."""
        volume = {"name": "np1", "profile": {"name": "general-purpose"}, "user_tags": ["Nodepool:A"]}
        made = caller.create(boot_volume_attachment={"delete_volume_on_instance_delete": True, "volume": volume})
        assert (made.status, made.lifecycle_state, made.status_reasons) == ("pending", "pending", [])
        caller.clock.now += 1
        shown = caller.instance()
        assert shown is not None
        assert (shown.id, shown.status, shown.zone.name) == (made.id, "running", "us-south-1")
        assert (shown.vcpu.count, shown.memory, shown.profile.name) == (2, 4, "cx2-2x4")
        assert shown.resource_group.name == "Default"
        assert shown.primary_network_interface.name == "eth0"
        assert shown.primary_network_interface.primary_ip.address.startswith("10.240.")
        (disk,) = caller.volumes()
        assert (disk.name, disk.user_tags, disk.attachment_state) == ("np1", ["nodepool:a"], "attached")
        assert disk.volume_attachments[0].instance.id == made.id
        caller.vpc.delete_instance(made.id)
        assert caller.status() == "deleting"
        caller.clock.now += 1
        assert (caller.instance(), caller.volumes()) == (None, [])
        assert not any(caller.simulator.state()["contents"].values())

    def test_attachments(self, caller: Caller) -> None:
        """An instance whose interface is a virtual one, to which a floating IP is bound."""
        told = {"name": "eth0", "virtual_network_interface": {"name": "vni", "subnet": {"id": caller.subnet()}}}
        made = caller.create(primary_network_attachment=told, primary_network_interface=None)
        attachment = made.primary_network_attachment
        assert attachment is not None
        interface = attachment.virtual_network_interface
        assert made.primary_network_interface.id == attachment.id != interface.id
        caller.vpc.create_floating_ip({"name": "np1", "target": {"id": interface.id}})
        (address,) = caller.addresses()
        assert address.target is not None
        target = FloatingIPTargetVirtualNetworkInterfaceReference.from_dict(address.target)
        assert (target.id, target.resource_type) == (interface.id, "virtual_network_interface")

    def test_older_version(self, caller: Caller) -> None:
        """The address of an interface was elsewhere before 2022-03-29."""
        made = caller.create()
        older = caller.client(version="2022-03-01").get_instance(made.id).get_result()
        address = made.primary_network_interface.primary_ip.address
        assert older["primary_network_interface"]["primary_ipv4_address"] == address

    @pytest.mark.parametrize("policy", ["stop", "delete"])
    def test_preemption(self, caller: Caller, policy: str) -> None:
        caller.simulator.change(boots=[VpcBootRule(kind="stopped", seconds=60, spot=True)])
        policies = {"availability": {"class": "spot"}, "availability_policy": {"preemption": policy}}
        caller.create("np1", profile={"name": "bxf-2x8"}, **policies)
        caller.clock.now += 1
        assert caller.status() == "running"
        caller.clock.now += 60
        shown = caller.instance()
        if policy == "delete":
            assert shown is None
            return
        assert shown is not None
        assert (shown.status, shown.status_reasons[0].code) == ("stopped", "stopped_by_preemption")


class TestFaults:
    def test_no_capacity(self, caller: Caller) -> None:
        """The create is accepted, and the instance fails; there may be room elsewhere."""
        caller.simulator.change(capacity=[ProfileCapacity(zone="us-south-1", room=1)])
        caller.create("np1")
        caller.create("np2")
        there = {
            "zone": {"name": "us-south-2"},
            "primary_network_interface": {"subnet": {"id": caller.subnet("us-south-2")}},
        }
        caller.create("np3", **there)
        caller.clock.now += 1
        assert [caller.status(name) for name in ("np1", "np2", "np3")] == ["running", "failed", "running"]
        failed = caller.instance("np2")
        assert failed is not None
        assert failed.status_reasons[0].code == "cannot_start_capacity"

    def test_boots(self, caller: Caller) -> None:
        stopped = VpcBootRule(kind="stopped", code="stopped_by_host_failure", message="host", count=1)
        caller.simulator.change(
            boots=[VpcBootRule(code="cannot_start_ip_address", count=1), stopped, VpcBootRule(kind="stuck")]
        )
        for name in ("np1", "np2", "np3"):
            caller.create(name)
        caller.clock.now += 100
        caller.instance()
        caller.clock.now += 100
        found = [caller.instance(name) for name in ("np1", "np2", "np3")]
        shown = [(one.status, [reason.code for reason in one.status_reasons]) for one in found if one is not None]
        assert shown == [
            ("failed", ["cannot_start_ip_address"]),
            ("stopped", ["stopped_by_host_failure"]),
            ("pending", []),
        ]

    def test_volume_that_stays(self, caller: Caller, refused: Refused) -> None:
        """It is found, and can be deleted once."""
        caller.simulator.change(boots=[VpcBootRule(leave_volume=True)])
        made = caller.create()
        (volume,) = caller.volumes()
        assert refused(caller.vpc.delete_volume, volume.id) == (409, "volume_in_use")
        caller.vpc.delete_instance(made.id)
        caller.clock.now += 1
        (volume,) = caller.volumes()
        assert volume.attachment_state == "unattached"
        caller.vpc.delete_volume(volume.id)
        assert refused(caller.vpc.delete_volume, volume.id) == (409, "volume_not_deletable")
        caller.clock.now += 1
        assert refused(caller.vpc.get_volume, volume.id) == (404, "not_found")

    def test_deletes(self, caller: Caller, refused: Refused) -> None:
        """One is swallowed, the next is stuck until it is released."""
        made = caller.create()
        caller.simulator.change(
            deletes=[VpcDeleteRule(kind="swallowed", count=1), VpcDeleteRule(kind="stuck", count=1)]
        )
        caller.vpc.delete_instance(made.id)
        caller.clock.now += 10
        assert caller.status() == "running"
        caller.vpc.delete_instance(made.id)
        caller.clock.now += 10
        assert caller.status() == "deleting"
        with caller.simulator.cloud() as cloud:
            cloud.instances.release_stuck()
        assert refused(caller.vpc.delete_instance, made.id) == (404, "not_found")

    def test_conflicts(self, caller: Caller, refused: Refused) -> None:
        """Where a region does not delete what is pending."""
        caller.simulator.change(delete_conflicts=True)
        made = caller.create()
        assert refused(caller.vpc.delete_instance, made.id) == (409, "instance_delete_conflict")
        caller.clock.now += 1
        caller.vpc.delete_instance(made.id)
        assert refused(caller.vpc.delete_instance, made.id) == (409, "instance_delete_conflict")

    def test_lag_of_lists(self, caller: Caller) -> None:
        """A new one is missing for a while; a deleted one stays for a while."""
        caller.simulator.change(hidden_rate=1.0, ghost_rate=1.0)
        made = caller.create()
        assert caller.instance() is None
        assert caller.vpc.get_instance(made.id).get_result()["id"] == made.id
        caller.clock.now += 2
        assert caller.status() == "running"
        caller.vpc.delete_instance(made.id)
        caller.clock.now += 0.2
        assert caller.status() == "deleting"
        caller.clock.now += 2
        assert caller.instance() is None


class TestRefusals:
    def test_name(self, caller: Caller, refused: Refused) -> None:
        """A name is in use as long as the instance or volume is there, whatever lists show."""
        caller.simulator.change(hidden_rate=1.0)
        made = caller.create()
        assert refused(caller.create) == (400, "validation_unique_failed")
        with caller.simulator.cloud() as cloud:
            cloud.add_volume("np2")
        volume = {"volume": {"name": "np2", "profile": {"name": "general-purpose"}}}
        create = caller.create
        assert refused(create, "np3", boot_volume_attachment=volume) == (400, "validation_unique_failed")
        for name in ("Np1", "np_1", "1np", "n" * 64):
            assert refused(create, name) == (400, "validation_invalid_name")
        caller.vpc.delete_instance(made.id)
        caller.clock.now += 1
        create()

    @pytest.mark.parametrize(
        ("quotas", "words"),
        [
            ({"vcpus": 3}, "A non-dedicated host VSI with this profile (2 vCPUs) will put user over quota."),
            (
                {"memory": 7},
                "A VSI with this profile (4GB memory) will put user over quota. Allocated: 4GB, Quota: 7GB",
            ),
            ({"instances": 1}, "Creating a new instance will put the user over quota."),
            ({"volumes": 1}, "Creating a new volume will put the user over quota."),
        ],
    )
    def test_quota(self, caller: Caller, quotas: dict[str, int], words: str) -> None:
        caller.simulator.change(quotas=quotas)
        caller.create()
        with pytest.raises(Exception, match="over quota") as caught:
            caller.create("np2")
        assert words in str(caught.value)

    @pytest.mark.parametrize(
        ("more", "expected"),
        [
            ({"profile": {"name": "huge"}}, (400, "not_found")),
            ({"profile": {"name": "mx2-2x16"}}, (400, "invalid_profile")),
            ({"profile": {"name": "bz2-2x8"}}, (400, "invalid_profile")),
            ({"zone": {"name": "us-south-9"}}, (400, "not_found")),
            ({"zone": {"name": "us-south-2"}}, (400, "invalid_zone")),
            ({"vpc": {"id": "r006-other"}}, (400, "bad_field")),
            ({"image": {"id": "r006-other"}}, (400, "not_found")),
            ({"keys": [{"id": "r006-other"}]}, (400, "not_found")),
            ({"resource_group": {"id": "other"}}, (400, "resource_group_not_found")),
            ({"availability": {"class": "spot"}}, (400, "invalid_value")),
            ({"user_data": "x" * 65537}, (400, "invalid_value")),
            ({"boot_volume_attachment": {"volume": {"name": "np1"}}}, (400, "validation_required_field")),
            ({"image": None}, (400, "validation_required_field")),
        ],
    )
    def test_bodies(self, caller: Caller, refused: Refused, more: dict[str, Any], expected: tuple[int, str]) -> None:
        assert refused(caller.create, **more) == expected
        assert not any(caller.simulator.state()["contents"].values())
