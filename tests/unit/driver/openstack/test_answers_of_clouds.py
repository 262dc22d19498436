# SPDX-License-Identifier: Apache-2.0
"""What services of OpenStack, and what stands before them, really answer: a row for each form, with its source."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import pytest
from openstack.block_storage.v3.volume import Volume as SdkVolume
from openstack.compute.v2.flavor import Flavor as SdkFlavor
from openstack.compute.v2.server import Server as SdkServer
from openstack.network.v2.floating_ip import FloatingIP as SdkFloatingIP
from openstack.network.v2.port import Port as SdkPort

from nodepool.driver.framework.cloud_errors import CloudAway, CloudNotFound, CloudQuota, CloudRefused, NotFoundByProxy
from nodepool.driver.openstack.api import Api
from nodepool.driver.openstack.errors import ServiceAbsent
from nodepool.driver.openstack.views import Flavor, FloatingIp, Port, Server, Volume, limit
from tests.unit.driver.openstack.test_transport import FastTransport, Response

NGINX = (
    b"<html>\r\n<head><title>404 Not Found</title></head>\r\n<body>\r\n<center><h1>404 Not Found</h1></center>\r\n"
    b"<hr><center>nginx</center>\r\n</body>\r\n</html>\r\n"
)
WEBOB = (
    b"<html>\n <head>\n  <title>404 Not Found</title>\n </head>\n <body>\n  <h1>404 Not Found</h1>\n"
    b"  Failed to find image 4 to delete<br /><br />\n\n\n\n </body>\n</html>"
)
ID = {"x_openstack_request_id": "req-1"}


def servers(*ids: str, **more: Any) -> dict[str, Any]:
    return {"servers": [{"id": one} for one in ids], **more}


def link(marker: str, rel: str = "next") -> list[dict[str, str]]:
    return [{"href": f"https://nova:8774/v2.1/servers/detail?limit=2&marker={marker}", "rel": rel}]


@pytest.mark.parametrize(
    ("pages", "ids"),
    [
        # api-ref/compute, "Paginated collections"; openstack.resource.Resource._get_next_link
        ([servers("a", "b", servers_links=link("b")), servers("c")], "abc"),
        ([servers("a", servers_links=link("a", "previous"))], "a"),
        ([servers("a", servers_links=None)], "a"),
        ([servers("a", servers_links=[])], "a"),
        ([servers(servers_links=link("x")), servers("c")], "c"),
        ([servers()], ""),
        # a service that does not know of the proxy before it
        (
            [
                servers("a", servers_links=[{"rel": "next", "href": "HTTP://Nova.Example:443/?marker=a"}]),
                servers(),
            ],
            "a",
        ),
        # neutron.api.api_common.get_pagination_links: the one before, too; an empty last page
        (
            [
                servers("a", servers_links=[*link("a", "previous"), *link("a")]),
                servers(servers_links=link("b", "previous")),
            ],
            "a",
        ),
        # Glance, api-ref/image, "List images": a path without a host
        ([servers("a", next="/v2/images?marker=a&limit=1"), servers("b", first="/v2/images")], "ab"),
        ([servers("a", next=None)], "a"),
    ],
)
def test_pages(pages: list[dict[str, Any]], ids: str) -> None:
    transport = FastTransport(*(Response(200, page) for page in pages))
    assert [server.id for server in Api(transport).servers()] == list(ids)
    markers = [asked[2].get("params", {}).get("marker") for asked in transport.client.asked]
    assert len(markers) == len(pages)
    assert None not in markers[1:]


@pytest.mark.parametrize("body", [b"", b"{}", b'{"servers": null}', b"[]", b"null", NGINX])
def test_what_is_no_list(body: bytes) -> None:
    """A proxy that answers 200 says nothing of servers: they must not count as gone."""
    with pytest.raises(CloudAway):
        Api(FastTransport(Response(200, body))).servers()


@pytest.mark.parametrize(
    ("answer", "kind", "text"),
    [
        # nova/api/openstack/wsgi.py, Fault
        (
            Response(404, {"itemNotFound": {"message": "Instance s could not be found.", "code": 404}}),
            CloudNotFound,
            "In",
        ),
        # glance/common/wsgi.py: the page of WebOb, in HTML or in JSON
        (Response(404, WEBOB), CloudNotFound, "Failed to find image 4 to delete"),
        (
            Response(403, {"message": "Image 4 is protected.<br /><br />\n\n\n", "title": "Forbidden"}),
            CloudRefused,
            "403 Image 4 is protected.",
        ),
        # oslo_middleware.request_id: whatever the body, it is the service's
        (Response(404, NGINX, **ID), CloudNotFound, "404 Not Found"),
        # nginx, haproxy, an ingress: of the object nothing is known
        (Response(404, NGINX), NotFoundByProxy, "it is the page of a proxy or web server before the service"),
        (Response(503, b"<html><body><h1>503 Service Unavailable</h1>\nNo server</body></html>"), CloudAway, "503"),
        (Response(502, b""), CloudAway, "502"),
        # neutron/api/api_common.py
        (
            Response(
                409,
                {
                    "NeutronError": {
                        "type": "OverQuota",
                        "message": "Quota exceeded for resources: ['port'].",
                        "detail": "",
                    }
                },
            ),
            CloudQuota,
            "Quota exceeded",
        ),
        (
            Response(404, {"message": "The resource could not be found.<br /><br />", "code": "404 Not Found"}),
            CloudNotFound,
            "The",
        ),
        # placement/util.py, json_error_formatter: an array
        (
            Response(409, {"errors": [{"status": 409, "title": "Conflict", "detail": "There was a conflict."}]}),
            CloudRefused,
            "409 There was a conflict.",
        ),
        (
            Response(404, {"type": "HTTPNotFound", "message": "The resource could not be found.", "detail": ""}),
            CloudNotFound,
            "404 The resource",
        ),
        # neutron_lib.exceptions.IpAddressGenerationFailure: no quota, the network is full
        (
            Response(
                409,
                {
                    "NeutronError": {
                        "type": "IpAddressGenerationFailure",
                        "message": "No more IP addresses available on network 4.",
                        "detail": "",
                    }
                },
            ),
            CloudRefused,
            "No more IP",
        ),
        # cinder.exception.QuotaError: 413 with "Retry-After: 0", which asks for no pause
        (
            Response(
                413,
                {
                    "overLimit": {
                        "code": 413,
                        "message": "VolumeLimitExceeded: Maximum number of volumes allowed (10) exceeded for quota "
                        "'volumes'.",
                        "retryAfter": "0",
                    }
                },
                Retry_After="0",
            ),
            CloudQuota,
            "Maximum number",
        ),
        (
            Response(413, {"overLimit": {"code": 413, "message": "UnexpectedOverQuota: Unexpected over quota on x."}}),
            CloudQuota,
            "over quota",
        ),
        # cinder.volume.api.API.delete
        (
            Response(
                400,
                {
                    "badRequest": {
                        "code": 400,
                        "message": "Invalid volume: Volume status must be available or error or error_restoring",
                    }
                },
            ),
            CloudRefused,
            "Invalid volume",
        ),
        # nova.limit.placement: TooManyInstances(str(ProjectOverLimit)) of oslo.limit; the word quota is not in it
        (
            Response(
                403,
                {
                    "forbidden": {
                        "code": 403,
                        "message": "Project 8 is over a limit for [Resource class:VCPU is over limit of 2 due to "
                        "current usage 2 and delta 2]",
                    }
                },
            ),
            CloudQuota,
            "over limit of 2",
        ),
        # nova.limit.local: limits of one call, which no wait helps
        (
            Response(
                403,
                {
                    "forbidden": {
                        "code": 403,
                        "message": "Project 8 is over a limit for [Resource server_metadata_items is over limit of "
                        "128 due to current usage 0 and delta 200]",
                    }
                },
            ),
            CloudRefused,
            "server_metadata_items",
        ),
        # the same without oslo.limit, nova.exception.MetadataLimitExceeded
        (
            Response(403, {"forbidden": {"code": 403, "message": "Maximum number of metadata items exceeds 128"}}),
            CloudRefused,
            "exceeds 128",
        ),
        # nova: OverQuota as 403, keystone as {"error": ...}
        (Response(403, {"forbidden": {"message": "Quota exceeded for cores", "code": 403}}), CloudQuota, "cores"),
        (
            Response(409, {"conflictingRequest": {"message": "Cannot 'delete' instance"}}),
            CloudRefused,
            "Can",
        ),
    ],
)
def test_errors(answer: Response, kind: type[Exception], text: str) -> None:
    transport = FastTransport(answer)
    with pytest.raises(kind, match=text) as caught:
        Api(transport).delete_server("s")
    assert type(caught.value) is kind
    assert len(transport.client.asked) == 1
    assert "<" not in str(caught.value)


@pytest.mark.parametrize("status", [200, 202, 204])
def test_deletions_without_a_body(status: int) -> None:
    """Nova: 204; Cinder and some gateways: 202 (api-ref/block-storage, "Delete a volume")."""
    Api(FastTransport(Response(status))).delete_server("s")


#: api-ref/compute, "Show Server Details" and "List Servers Detailed", with other microversions and odd values.
SERVERS: list[dict[str, Any]] = [
    {"id": "s", "status": "ACTIVE", "flavor": {"id": "1"}, "image": "", "addresses": {}, "metadata": {}},
    {"id": "s", "status": "ACTIVE", "flavor": {"vcpus": 2, "ram": 512, "original_name": "m1", "extra_specs": {}}},
    {"id": "s", "status": "SHELVED_OFFLOADED", "OS-EXT-AZ:availability_zone": "", "hostId": ""},
    {"id": "s", "status": "BUILD", "OS-EXT-STS:task_state": None, "OS-EXT-AZ:availability_zone": None, "fault": None},
    # 2.69: of a cell that is down
    {"id": "s", "status": "UNKNOWN", "created": "2018-06-29T15:07:29Z", "tenant_id": "p", "links": []},
    {"id": "s", "status": "ACTIVE", "addresses": None, "metadata": None, "flavor": None, "accessIPv4": None},
    {
        "id": "s",
        "status": "VERIFY_RESIZE",
        "os-extended-volumes:volumes_attached": [{"id": "v", "delete_on_termination": True}],
    },
    {"id": "s", "status": "ACTIVE", "os-extended-volumes:volumes_attached": None},
    # openstack.compute.v2.server reads any of these; networks of a server that is being built
    {"id": "s", "status": "BUILD", "config_drive": True, "security_groups": None, "fault": {}, "image": None},
    {"id": "s", "status": "SOFT_DELETED", "config_drive": "", "OS-EXT-SRV-ATTR:host": None, "vendor:plan": [{"a": -1}]},
    # a vendor's own Nova: sizes as texts beside the id
    {"id": "s", "status": "BUILD", "flavor": {"id": "1", "name": "m1", "vcpus": "2", "ram": "512", "disk": "0"}},
    {"id": "s", "status": "WHAT_COMES_NEXT", "hostId": "h", "OS-EXT-AZ:availability_zone": "nova"},
]


@pytest.mark.parametrize("data", SERVERS)
def test_servers(data: dict[str, Any]) -> None:
    """The same as openstacksdk reads, with what is absent or null made empty."""
    found, sdk = Server.of(data), SdkServer.existing(**data)
    assert found.status == sdk.status
    assert found.az == (sdk.availability_zone or None)
    assert found.host_id == (sdk.host_id or None)
    assert dict(found.metadata) == (sdk.metadata or {})
    assert found.volumes == tuple(volume["id"] for volume in sdk.attached_volumes or ())
    flavor = sdk.flavor
    assert (found.cores, found.ram) == (((flavor.vcpus or 0), (flavor.ram or 0)) if flavor else (0, 0))


@pytest.mark.parametrize(
    ("written", "read"),
    [
        # nova.utils.isotime writes whole seconds. Other times in answers of Nova have fractions, without a zone
        # (OS-SRV-USG:launched_at in doc/api_samples/servers), and so have times of vendors' own Novas.
        ("2015-03-09T12:15:57Z", "2015-03-09T12:15:57Z"),
        ("2015-03-09T12:15:57.233772", "2015-03-09T12:15:57Z"),
        ("2015-03-09T12:15:57.233772Z", "2015-03-09T12:15:57Z"),
        ("2015-03-09T12:15:57.233772+00:00", "2015-03-09T12:15:57Z"),
        ("2015-03-09T12:15:57", "2015-03-09T12:15:57Z"),
        ("", ""),
        (None, ""),
    ],
)
def test_times(written: str | None, read: str) -> None:
    """They are compared as texts: those with and without fractions would be in the wrong order."""
    assert Server.of({"id": "s", "updated": written}).updated == read


@pytest.mark.parametrize("form", [int, str, float])
def test_numbers(form: Callable[[int], Any]) -> None:
    """openstack.compute.v2.flavor has ``ram`` and ``vcpus`` of the type int, whatever is sent."""
    data = {"id": "1", "name": "m1", "vcpus": form(4), "ram": form(8192)}
    sdk = SdkFlavor.existing(**json.loads(json.dumps(data)))
    assert Flavor.of(data) == Flavor("1", "m1", 4, 8192)
    assert (int(float(sdk.vcpus)), int(float(sdk.ram))) == (4, 8192)


#: neutron-lib, api-ref/source/v2/samples/floatingips/floating-ips-list-response.json: attached, free, and with single
#: ports forwarded: then ``port_id`` is null, too.
FLOATING_IPS: list[tuple[dict[str, Any], FloatingIp]] = [
    (
        {
            "router_id": "r",
            "fixed_ip_address": "10.0.0.3",
            "floating_ip_address": "172.24.4.228",
            "port_id": "p",
            "id": "a",
            "status": "ACTIVE",
            "port_details": {"status": "ACTIVE", "device_owner": "compute:nova", "device_id": "s"},
            "port_forwardings": [],
        },
        FloatingIp("a", "172.24.4.228", "p", "10.0.0.3"),
    ),
    (
        {
            "router_id": None,
            "fixed_ip_address": None,
            "floating_ip_address": "172.24.4.227",
            "port_id": None,
            "id": "b",
            "status": "DOWN",
            "port_details": None,
            "port_forwardings": [],
        },
        FloatingIp("b", "172.24.4.227", "", ""),
    ),
    (
        {
            "router_id": "r",
            "fixed_ip_address": None,
            "floating_ip_address": "172.24.4.42",
            "port_id": None,
            "id": "c",
            "status": "ACTIVE",
            "port_forwardings": [{"protocol": "tcp", "internal_ip_address": "10.0.0.19", "internal_port": 25}],
        },
        FloatingIp("c", "172.24.4.42", "", "", forwards=True),
    ),
    # gophercloud, floatingips/testing: without the extensions; "" in place of null
    (
        {"id": "d", "floating_ip_address": "192.0.0.4", "fixed_ip_address": "", "port_id": "", "status": "DOWN"},
        FloatingIp("d", "192.0.0.4", "", ""),
    ),
    # neutron.db.l3_db._make_floatingip_dict: an address that is not known yet; api-ref: a third status
    (
        {"id": "e", "floating_ip_address": None, "fixed_ip_address": None, "port_id": None, "status": "ERROR"},
        FloatingIp("e", "", "", ""),
    ),
]


@pytest.mark.parametrize(("data", "wanted"), FLOATING_IPS)
def test_floating_ips(data: dict[str, Any], wanted: FloatingIp) -> None:
    sdk = SdkFloatingIP.existing(**data)
    (found,) = Api(FastTransport(Response(200, {"floatingips": [data]}))).floating_ips()
    assert found == wanted
    assert (found.address, found.port) == (sdk.floating_ip_address or "", sdk.port_id or "")
    assert found.fixed_address == (sdk.fixed_ip_address or "")
    made = Api(FastTransport(Response(201, {"floatingip": data}))).create_floating_ip("n", PORT, "10.0.0.3", "")
    assert made == wanted


PORT = Port("p", "n", "ACTIVE", "compute:nova", "s", ("10.0.0.3",))


@pytest.mark.parametrize(
    ("data", "wanted"),
    [
        # neutron-lib, api-ref/source/v2/samples/ports/ports-list-response.json
        (
            {
                "id": "p",
                "network_id": "n",
                "status": "ACTIVE",
                "device_owner": "compute:nova",
                "device_id": "s",
                "fixed_ips": [{"ip_address": "10.0.0.3", "subnet_id": "u"}],
            },
            PORT,
        ),
        # neutron_lib.constants, PORT_STATUS_*: more than the page names
        (
            {"id": "p", "network_id": "n", "status": "N/A", "device_owner": "", "device_id": "", "fixed_ips": []},
            Port("p", "n", "N/A", "", "", ()),
        ),
        # neutron_lib.api.definitions.port: IPv6 comes in the same list; ``ip_allocation: deferred`` has none yet
        (
            {
                "id": "p",
                "network_id": "n",
                "status": "BUILD",
                "fixed_ips": [{"subnet_id": "u", "ip_address": "2001:db8::5"}, {"subnet_id": "w"}],
            },
            Port("p", "n", "BUILD", "", "", ("2001:db8::5",)),
        ),
        # asked for ``fields`` that the policy hides: neutron.pecan_wsgi.hooks.policy_enforcement leaves them out
        ({"id": "p"}, Port("p", "", "", "", "", ())),
    ],
)
def test_ports(data: dict[str, Any], wanted: Port) -> None:
    sdk = SdkPort.existing(**data)
    (found,) = Api(FastTransport(Response(200, {"ports": [data]}))).ports("s")
    assert found == wanted
    assert (found.network, found.status) == (sdk.network_id or "", sdk.status or "")
    assert (found.owner, found.device) == (sdk.device_owner or "", sdk.device_id or "")


#: Of api-ref/block-storage, "Volume statuses". What is listed as attached is only what is so entirely:
#: cinder.api.v3.views.volumes.ViewBuilder._get_attachments.
STATUSES = (
    *("creating", "available", "reserved", "attaching", "detaching", "in-use", "maintenance", "deleting"),
    *("awaiting-transfer", "error", "error_deleting", "backing-up", "restoring-backup", "error_backing-up"),
    *("error_restoring", "error_extending", "downloading", "uploading", "retyping", "extending", "what-comes-next"),
)


@pytest.mark.parametrize("status", STATUSES)
def test_states_of_volumes(status: str) -> None:
    found = Volume.of({"id": "v", "status": status, "attachments": []})
    assert (found.attached, found.deleting) == (False, status == "deleting")


@pytest.mark.parametrize(
    "data",
    [
        # cinder, api-ref/source/v3/samples/volumes/v3.65/volumes-list-detailed-response.json
        {
            "attachments": [],
            "bootable": "false",
            "id": "v",
            "metadata": {},
            "name": None,
            "size": 10,
            "status": "creating",
            "updated_at": None,
            "consumes_quota": True,
        },
        # gophercloud, blockstorage/v3/volumes/testing: attached, and available all the same
        {
            "attachments": [{"server_id": "s", "attachment_id": "a", "device": "/dev/vdc", "id": "v"}],
            "id": "v",
            "metadata": {"foo": "bar"},
            "size": 75,
            "status": "available",
        },
        # openstack.block_storage.v3.volume: of the type int, whatever is sent; what is absent is empty
        {"id": "v", "size": "75", "status": "in-use"},
        {"id": "v", "size": None, "status": "error_deleting", "attachments": None, "metadata": None},
    ],
)
def test_volumes(data: dict[str, Any]) -> None:
    sdk = SdkVolume.existing(**data)
    (found,) = Api(FastTransport(Response(200, {"volumes": [data]}))).volumes()
    assert found.size == int(sdk.size or 0)
    assert found.attached == bool(sdk.attachments)
    assert dict(found.metadata) == (sdk.metadata or {})


@pytest.mark.parametrize(
    ("absolute", "most"),
    [
        # nova, doc/api_samples/limits/v2.57/limit-get-resp.json; gophercloud, compute/v2/limits/testing
        ({"maxServerMeta": 128, "maxTotalInstances": 10, "totalInstancesUsed": 0}, 10),
        # nova.quota, QuotaEngine.UNLIMITED_VALUE and NoopQuotaDriver; keystone: any negative limit
        ({"maxTotalInstances": -1}, math.inf),
        # nova.quota.UnifiedLimitsDriver: a limit that is not set in Keystone is 0
        ({"maxTotalInstances": 0}, 0),
        # views.limits.ViewBuilder of Nova and Cinder leave out what is None, and all if nothing is limited
        ({"maxTotalCores": 20}, math.inf),
        ({}, math.inf),
        # openstack.compute.v2.limits, AbsoluteLimits: of the type int, whatever is sent
        ({"maxTotalInstances": "10"}, 10),
        ({"maxTotalInstances": "-1"}, math.inf),
        ({"maxTotalInstances": None}, math.inf),
    ],
)
def test_limits(absolute: dict[str, Any], most: float) -> None:
    """Cinder's have the same form: cinder, api-ref/source/v3/samples/limits/limits-show-response.json."""
    answer = Response(200, {"limits": {"rate": [], "absolute": absolute}})
    for found in (Api(FastTransport(answer)).compute_limits(), Api(FastTransport(answer)).volume_limits()):
        assert limit(found.get("maxTotalInstances")) == most


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b'{"limits": null}', NGINX])
def test_what_is_no_limits(body: bytes) -> None:
    """Not the same as no limit."""
    for ask in (Api.compute_limits, Api.volume_limits):
        with pytest.raises(CloudAway):
            ask(Api(FastTransport(Response(200, body))))


@pytest.mark.parametrize(
    ("ask", "nothing"),
    [
        (Api.volume_limits, {}),
        (Api.volumes, []),
        (Api.networks, None),
        (Api.security_groups, None),
        (Api.networks_with_gateway, frozenset()),
        (Api.ports, []),
        (Api.floating_ips, []),
    ],
)
def test_a_service_that_is_only_in_the_catalog(ask: Callable[[Api], Any], nothing: Any) -> None:
    """keystoneauth1.exceptions.EndpointNotFound comes with the first call: a catalog with ``volume`` alone, say."""
    assert ask(Api(FastTransport(ServiceAbsent("no endpoint")))) == nothing
