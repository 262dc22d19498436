# SPDX-License-Identifier: Apache-2.0
"""Logins, lists, floating IPs, groups and tags of the simulated region, asked with IBM's own clients."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import requests
from ibm_cloud_sdk_core import ApiException
from ibm_cloud_sdk_core.authenticators import (
    BearerTokenAuthenticator,
    ContainerAuthenticator,
    IAMAssumeAuthenticator,
    IAMAuthenticator,
    VPCInstanceAuthenticator,
)
from ibm_vpc import vpc_v1 as models

from simulators.ibmvpc import IbmVpcSettings, VpcErrorRule
from simulators.ibmvpc.core import ACCOUNT
from simulators.ibmvpc.iam_api import CR_TOKEN, PROFILE_ID
from tests.unit.simulators.ibmvpc.conftest import Caller, Refused, with_group_name

LISTS = {
    "vpcs": models.VPCCollection,
    "subnets": models.SubnetCollection,
    "keys": models.KeyCollection,
    "images": models.ImageCollection,
    "instance_profiles": models.InstanceProfileCollection,
    "operating_systems": models.OperatingSystemCollection,
    "instances": models.InstanceCollection,
    "volumes": models.VolumeCollection,
    "floating_ips": models.FloatingIPCollection,
}


class TestLogins:
    def test_kinds(self, caller: Caller, tmp_path: Path) -> None:
        """API key, token of a container, instance identity (both versions), a profile that is assumed."""
        token_file = tmp_path / "token"
        token_file.write_text(CR_TOKEN)
        url, key = caller.simulator.url, IbmVpcSettings.api_key
        kinds: list[Any] = [
            IAMAuthenticator(key, url=url),
            ContainerAuthenticator(cr_token_filename=str(token_file), iam_profile_name="nodepool", url=url),
            IAMAssumeAuthenticator(apikey=key, iam_profile_id=PROFILE_ID, url=url),
            VPCInstanceAuthenticator(url=url),
            VPCInstanceAuthenticator(iam_profile_id=PROFILE_ID, url=url),
            VPCInstanceAuthenticator(url=url, service_version="2025-08-26"),
        ]
        for kind in kinds:
            assert caller.client(kind).list_vpcs().get_result()["total_count"] == 1

    def test_refusals(self, caller: Caller, refused: Refused, tmp_path: Path) -> None:
        """A wrong key, token or profile; a token that IAM did not give."""
        token_file = tmp_path / "token"
        token_file.write_text("other")
        url = caller.simulator.url
        kinds: list[Any] = [
            IAMAuthenticator("other", url=url),
            ContainerAuthenticator(cr_token_filename=str(token_file), iam_profile_name="nodepool", url=url),
            IAMAssumeAuthenticator(apikey=IbmVpcSettings.api_key, iam_profile_id="other", url=url),
            VPCInstanceAuthenticator(iam_profile_id="other", url=url),
        ]
        for kind in kinds:
            with pytest.raises(ApiException) as caught:
                caller.client(kind).list_vpcs()
            assert caught.value.status_code == 400
        stranger = caller.client(BearerTokenAuthenticator("other"))
        assert refused(stranger.list_vpcs) == (401, "not_authenticated")

    def test_token_that_ends(self, caller: Caller, refused: Refused) -> None:
        held = caller.client(BearerTokenAuthenticator(caller.token))
        held.list_vpcs()
        caller.clock.now += 3601
        assert refused(held.list_vpcs) == (401, "not_authenticated")


class TestLists:
    @pytest.mark.parametrize("kind", LISTS)
    def test_shapes(self, caller: Caller, kind: str) -> None:
        """Every list goes through IBM's models; but for one property of images, see `with_group_name`."""
        made = caller.create()
        caller.vpc.create_floating_ip({"name": "ip", "target": {"id": made.primary_network_interface.id}})
        answer = getattr(caller.vpc, f"list_{kind}")(limit=100).get_result()
        if kind == "images":
            answer["images"] = list(map(with_group_name, answer["images"]))
        assert LISTS[kind].from_dict(answer).total_count > 0

    def test_pages(self, caller: Caller, refused: Refused) -> None:
        """IBM's own pager finds all, with 100 at most on a page."""
        caller.simulator.change(page_limit=2)
        for number in range(5):
            caller.create(f"np{number}")
        pager = models.InstancesPager(client=caller.vpc, limit=100)
        assert [found["name"] for found in pager.get_all()] == ["np4", "np3", "np2", "np1", "np0"]
        for limit in (0, 101):
            assert refused(caller.vpc.list_instances, limit=limit) == (400, "invalid_value")
        assert refused(caller.vpc.list_instances, start="other") == (400, "invalid_value")

    def test_filters(self, caller: Caller) -> None:
        """By name, group, zone, visibility and status."""
        with caller.simulator.cloud() as cloud:
            cloud.add_instance("np7", "np_somewhere_main")
            cloud.add_image("npimage1", "npimages_somewhere")
        group = caller.groups.list_resource_groups(name="np_somewhere_main").get_result()["resources"][0]
        listed = caller.vpc.list_instances(resource_group_id=group["id"]).get_result()["instances"]
        assert [found["name"] for found in listed] == ["np7"]
        assert caller.vpc.list_instances(resource_group_id="other").get_result()["instances"] == []
        mine = caller.vpc.list_images(visibility="private").get_result()["images"]
        assert [found["name"] for found in mine] == ["npimage1"]
        assert caller.vpc.list_images(name="npimage1", status=["failed", "pending"]).get_result()["images"] == []
        zones = caller.vpc.list_subnets(zone_name="us-south-2").get_result()["subnets"]
        assert [found["name"] for found in zones] == ["ci-us-south-2"]

    def test_images_of_older_versions(self, caller: Caller) -> None:
        """Who owns an image was said in another way before 2025-06-30."""
        with caller.simulator.cloud() as cloud:
            cloud.add_image("npimage1")
        older = caller.client(version="2025-06-01").list_images().get_result()["images"]
        assert {found["owner_type"] for found in older} == {"user", "provider"}
        (mine,) = [found for found in older if found["owner_type"] == "user"]
        assert mine["name"] == "npimage1"

    def test_parameters(self, caller: Caller) -> None:
        """Version and generation are needed."""
        headers = {"Authorization": f"Bearer {caller.token}"}
        url = f"{caller.simulator.url}/v1/instances"
        cases: tuple[tuple[dict[str, str], str], ...] = (
            ({}, "invalid_version"),
            ({"version": "2026-23-99", "generation": "2"}, "invalid_version"),
            ({"version": "2026-10-06"}, "invalid_generation_parameter"),
            ({"version": "2026-10-06", "generation": "1"}, "invalid_generation_parameter"),
        )
        for parameters, code in cases:
            answer = requests.get(url, params=parameters, headers=headers, timeout=10)
            assert (answer.status_code, answer.json()["errors"][0]["code"]) == (400, code)
            assert answer.json()["trace"]

    def test_faults(self, caller: Caller, refused: Refused) -> None:
        """Throttles, what a policy denies, and rules with IBM's codes."""
        caller.simulator.change(throttle_size=2, throttle_refill=1.0)
        caller.vpc.list_vpcs()
        caller.vpc.list_vpcs()
        assert refused(caller.vpc.list_vpcs) == (429, "too_many_requests")
        caller.clock.now += 1
        caller.vpc.list_vpcs()
        caller.simulator.change(throttle_size=0, denied=["vpc.list_k*"])
        assert refused(caller.vpc.list_keys) == (403, "not_authorized")
        caller.simulator.change(errors=[VpcErrorRule(operation="vpc.list_vpcs", kind="503", code="service_error")])
        assert refused(caller.vpc.list_vpcs) == (503, "service_error")


class TestFloatingIps:
    def test_life(self, caller: Caller, refused: Refused) -> None:
        """Made on an interface, freed with it, bound to the next one, deleted."""
        caller.simulator.change(address_seconds=[1, 1])
        first, second = caller.create("np1"), caller.create("np2")
        target = {"target": {"id": first.primary_network_interface.id}}
        caller.vpc.create_floating_ip({"name": "np1", **target})
        (address,) = caller.addresses()
        interface = first.primary_network_interface
        bound = models.FloatingIPTargetNetworkInterfaceReference.from_dict(address.target)
        assert (address.status, bound.id, address.zone.name) == ("pending", interface.id, "us-south-1")
        assert bound.primary_ip.address == interface.primary_ip.address
        caller.clock.now += 1
        assert caller.addresses()[0].status == "available"
        create = caller.vpc.create_floating_ip
        assert refused(create, {"name": "ip", **target}) == (409, "network_interface_in_use")
        caller.vpc.delete_instance(first.id)
        caller.clock.now += 1
        assert caller.addresses()[0].target is None
        assert refused(create, {"name": "ip", **target}) == (400, "not_found")
        change = {"name": "np2", "target": {"id": second.primary_network_interface.id}}
        caller.vpc.update_floating_ip(address.id, change)
        (address,) = caller.addresses()
        bound = models.FloatingIPTargetNetworkInterfaceReference.from_dict(address.target)
        assert (address.name, bound.id) == ("np2", second.primary_network_interface.id)
        caller.vpc.delete_floating_ip(address.id)
        assert refused(caller.vpc.delete_floating_ip, address.id) == (409, "invalid_state")
        caller.clock.now += 1
        assert caller.addresses() == []

    def test_as_the_released_driver_binds_it(self, caller: Caller) -> None:
        """Made for a zone, then attached to the interface."""
        made = caller.create()
        address = caller.vpc.create_floating_ip({"name": "np1", "zone": {"name": "us-south-1"}}).get_result()
        place = {"instance_id": made.id, "network_interface_id": made.primary_network_interface.id}
        caller.vpc.add_instance_network_interface_floating_ip(id=address["id"], **place)
        bound = caller.vpc.list_instance_network_interface_floating_ips(**place).get_result()
        models.FloatingIPUnpaginatedCollection.from_dict(bound)
        assert [found["id"] for found in bound["floating_ips"]] == [address["id"]]
        interfaces = caller.vpc.list_instance_network_interfaces(made.id).get_result()["network_interfaces"]
        assert models.NetworkInterface.from_dict(interfaces[0]).floating_ips[0].id == address["id"]
        caller.vpc.remove_instance_network_interface_floating_ip(id=address["id"], **place)
        assert caller.addresses()[0].target is None

    def test_refusals(self, caller: Caller, refused: Refused) -> None:
        """Names, zones and quota of a zone."""
        made = caller.create()
        create = caller.vpc.create_floating_ip
        there = create({"name": "there", "zone": {"name": "us-south-2"}}).get_result()
        assert refused(create, {"name": "there", "zone": {"name": "us-south-1"}}) == (400, "validation_unique_failed")
        bind = {"target": {"id": made.primary_network_interface.id}}
        assert refused(caller.vpc.update_floating_ip, there["id"], bind) == (400, "invalid_zone")
        caller.simulator.change(quotas={"floating_ips": 1})
        create({"name": "here", "zone": {"name": "us-south-1"}})
        assert refused(create, {"name": "more", "zone": {"name": "us-south-1"}}) == (400, "over_quota")
        create({"name": "elsewhere", "zone": {"name": "us-south-3"}})


class TestAccount:
    def test_groups(self, caller: Caller, refused: Refused) -> None:
        """Made once, and listed late."""
        caller.simulator.change(group_lag_seconds=[5, 5])
        create = caller.groups.create_resource_group
        made = create(name="np_somewhere_main", account_id=ACCOUNT).get_result()
        assert refused(create, name="np_somewhere_main", account_id=ACCOUNT) == (409, "RESGROUP_DUPLICATE")
        assert refused(create, name="x", account_id="other") == (400, "RESGROUP_BAD_REQUEST")
        listed = caller.groups.list_resource_groups
        assert [group["name"] for group in listed().get_result()["resources"]] == ["Default"]
        caller.clock.now += 5
        caller.simulator.state()
        found = {group["name"]: group["id"] for group in listed(account_id=ACCOUNT).get_result()["resources"]}
        assert found["np_somewhere_main"] == made["id"]
        instance = caller.create(resource_group={"id": made["id"]})
        assert instance.resource_group.name == "np_somewhere_main"

    def test_unknown_group(self, caller: Caller) -> None:
        """A thing may be in a group that the client does not see."""
        with caller.simulator.cloud() as cloud:
            cloud.add_instance("np7", "secret", hidden_group=True)
        instance = caller.instance("np7")
        assert instance is not None
        assert instance.resource_group.name == "secret"
        assert len(caller.groups.list_resource_groups().get_result()["resources"]) == 1

    def test_storage_instance(self, caller: Caller) -> None:
        """The instance of object storage, whose CRN names the account."""
        listed = caller.controller.list_resource_instances
        (found,) = listed(name="storage", type="service_instance").get_result()["resources"]
        assert found["crn"].startswith("crn:v1:bluemix:public:cloud-object-storage:global:a/")
        assert listed(name="other").get_result()["resources"] == []

    def test_tags(self, caller: Caller) -> None:
        """Of volumes they are shown with the volume."""
        made = caller.create()
        (volume,) = caller.volumes()
        for crn in (made.crn, volume.crn):
            resources = [{"resource_id": crn}]
            results = caller.tagging.attach_tag(tag_names=["a:b", "c:d"], resources=resources).get_result()
            assert [found["is_error"] for found in results["results"]] == [False]
            caller.tagging.detach_tag(tag_names=["c:d"], resources=resources)
            items = caller.tagging.list_tags(attached_to=crn).get_result()["items"]
            assert [found["name"] for found in items] == ["a:b"]
        assert caller.volumes()[0].user_tags == ["a:b"]
        assert len(caller.vpc.list_volumes(tag="a:b").get_result()["volumes"]) == 1
        assert caller.vpc.list_volumes(tag="c:d").get_result()["volumes"] == []
