# SPDX-License-Identifier: Apache-2.0
"""Neutron v2.0 (https://docs.openstack.org/api-ref/network/v2/)."""

from __future__ import annotations

from collections.abc import Callable

from simulators.openstack.cloud import Cloud
from simulators.openstack.collection import Collection, cut_page
from simulators.openstack.messages import Answer, ApiError, Json, Request, json_answer
from simulators.openstack.routing import Handler, Service, base_url

PREFIX = "v2.0"
EXTENSIONS = ("quotas", "quota_details", "security-group", "port-security", "provider", "pagination", "sorting")
#: These are there with floating IPs.
ROUTER_EXTENSIONS = ("router", "external-net", "fip-port-details")


class NetworkApi(Service):
    """Networks, subnets, ports, floating IPs, security groups."""

    name = "network"

    def __init__(self, cloud: Cloud) -> None:
        super().__init__(cloud)
        network = cloud.network
        self.route("GET", "", "versions", self._versions, open=True)
        self.route("GET", PREFIX, "version", self._version)
        self._resource("networks", "network", network.networks)
        self._resource("subnets", "subnet", network.subnets)
        self._resource("ports", "port", network.ports)
        self._resource("floatingips", "floatingip", network.floating_ips)
        self._resource("security-groups", "security_group", network.security_groups)
        self._resource("routers", "router", Collection("Router", "routers"))
        self._resource("agents", "agent", Collection("Agent", "agents"))
        self._resource(
            "security-group-rules", "security_group_rule", Collection("SecurityGroupRule", "security_group_rules")
        )
        self.route("POST", f"{PREFIX}/ports", "create_port", self._create_port)
        self.route("DELETE", f"{PREFIX}/ports/{{}}", "delete_port", self._delete_port)
        self.route("POST", f"{PREFIX}/floatingips", "create_floatingip", self._create_floating_ip)
        self.route("PUT", f"{PREFIX}/floatingips/{{}}", "update_floatingip", self._update_floating_ip)
        self.route("DELETE", f"{PREFIX}/floatingips/{{}}", "delete_floatingip", self._delete_floating_ip)
        self.route("POST", f"{PREFIX}/security-groups", "create_security_group", self._create_security_group)
        self.route("GET", f"{PREFIX}/extensions", "list_extensions", self._extensions)
        self.route("GET", f"{PREFIX}/availability_zones", "list_zones", self._zones)
        self.route("GET", f"{PREFIX}/quotas/{{}}", "quotas", self._quotas)
        self.route("GET", f"{PREFIX}/quotas/{{}}/details", "quota_details", self._quota_details)

    def error(self, error: ApiError) -> Answer:
        """Neutron's shape; the token check in front of it has its own."""
        if error.status == 401:
            content: Json = {"error": {"code": 401, "title": "Unauthorized", "message": error.message}}
        else:
            content = {"NeutronError": {"type": error.kind or "HTTPError", "message": error.message, "detail": ""}}
        answer = json_answer(content, error.status)
        answer.headers |= error.headers
        return answer

    def _resource(self, path: str, singular: str, collection: Collection) -> None:
        self.route("GET", f"{PREFIX}/{path}", f"list_{path.replace('-', '_')}", self._lister(collection))
        self.route("GET", f"{PREFIX}/{path}/{{}}", f"get_{singular}", self._getter(collection, singular))

    def _lister(self, collection: Collection) -> Handler:
        def serve(request: Request, _values: list[str]) -> Answer:
            found = [entry for entry in collection.matching(request.query) if self._visible(entry)]
            known = {entry["id"] for entry in collection} if "marker" in request.query else set()
            page, marker = cut_page(found, request.query, self.cloud.core.knobs.page_limit, known, self.more())
            return Answer(body=collection.list_text(page, self.links(request, marker), request.query.get("fields")))

        return self._checked(collection, serve)

    def _getter(self, collection: Collection, singular: str) -> Handler:
        def serve(_request: Request, values: list[str]) -> Answer:
            return Answer(body=b'{"%s": %s}' % (singular.encode(), collection.text(collection.get(values[0]))))

        return self._checked(collection, serve)

    def _checked(self, collection: Collection, serve: Handler) -> Handler:
        if collection is not self.cloud.network.floating_ips:
            return serve

        def check(request: Request, values: list[str]) -> Answer:
            self._need_floating_ips()
            return serve(request, values)

        return check

    def _visible(self, entry: Json) -> bool:
        return self.cloud.core.knobs.floating_ips or not entry.get("router:external")

    def _need_floating_ips(self) -> None:
        if not self.cloud.core.knobs.floating_ips:
            raise ApiError(404, "The resource could not be found.", "HTTPNotFound")

    def _versions(self, request: Request, _values: list[str]) -> Answer:
        links = [{"rel": "self", "href": f"{base_url(request)}/network/v2.0/"}]
        return json_answer({"versions": [{"id": "v2.0", "status": "CURRENT", "links": links}]})

    def _version(self, _request: Request, _values: list[str]) -> Answer:
        return json_answer({"resources": []})

    def _create_port(self, request: Request, _values: list[str]) -> Answer:
        body = request.member("port")
        owner = str(body.get("device_owner", ""))
        port = self.cloud.network.create_port(str(body.get("network_id", "")), str(body.get("device_id", "")), owner)
        port["name"] = str(body.get("name", ""))
        self.cloud.network.ports.changed(port)
        return json_answer({"port": port}, 201)

    def _delete_port(self, _request: Request, values: list[str]) -> Answer:
        server_id = self.cloud.network.ports.get(values[0])["device_id"]
        self.cloud.network.delete_port(values[0])
        self.cloud.compute.refresh_addresses(server_id)
        return Answer(204)

    def _create_floating_ip(self, request: Request, _values: list[str]) -> Answer:
        self._need_floating_ips()
        body = request.member("floatingip")
        entry = self.cloud.network.create_floating_ip(
            str(body.get("floating_network_id", "")), body.get("port_id"), body.get("fixed_ip_address")
        )
        self._refresh(entry["port_id"])
        self.cloud.core.accepted("FloatingIP", entry["id"])
        return json_answer({"floatingip": entry}, 201)

    def _update_floating_ip(self, request: Request, values: list[str]) -> Answer:
        self._need_floating_ips()
        body = request.member("floatingip")
        self.cloud.core.check_known("FloatingIP", values[0])
        entry = self.cloud.network.floating_ips.get(values[0])
        before = entry["port_id"]
        if "port_id" in body:
            self.cloud.network.attach(entry, body["port_id"], body.get("fixed_ip_address"))
        self._refresh(before)
        self._refresh(entry["port_id"])
        return json_answer({"floatingip": entry})

    def _delete_floating_ip(self, _request: Request, values: list[str]) -> Answer:
        self._need_floating_ips()
        self.cloud.core.check_known("FloatingIP", values[0])
        self._refresh(self.cloud.network.delete_floating_ip(values[0])["port_id"])
        return Answer(204)

    def _refresh(self, port_id: str | None) -> None:
        if port_id is not None and port_id in self.cloud.network.ports:
            self.cloud.compute.refresh_addresses(self.cloud.network.ports.get(port_id)["device_id"])

    def _create_security_group(self, request: Request, _values: list[str]) -> Answer:
        name = str(request.member("security_group").get("name", ""))
        return json_answer({"security_group": self.cloud.network.add_security_group(name)}, 201)

    def _extensions(self, _request: Request, _values: list[str]) -> Answer:
        aliases = EXTENSIONS + (ROUTER_EXTENSIONS if self.cloud.core.knobs.floating_ips else ())
        entries = [{"alias": alias, "name": alias, "description": "", "links": [], "updated": ""} for alias in aliases]
        return json_answer({"extensions": entries})

    def _zones(self, _request: Request, _values: list[str]) -> Answer:
        return json_answer({"availability_zones": [{"name": "nova", "resource": "network", "state": "available"}]})

    def _quotas(self, _request: Request, _values: list[str]) -> Answer:
        return json_answer({"quota": self._quota(lambda limit, _used: limit)})

    def _quota_details(self, _request: Request, _values: list[str]) -> Answer:
        return json_answer({"quota": self._quota(lambda limit, used: {"limit": limit, "used": used, "reserved": 0})})

    def _quota(self, shape: Callable[[int, int], object]) -> Json:
        quota = self.cloud.core.knobs.quota
        network = self.cloud.network
        return {
            "port": shape(quota.ports, len(network.ports)),
            "floatingip": shape(quota.floating_ips, len(network.floating_ips)),
            "network": shape(-1, len(network.networks)),
            "subnet": shape(-1, len(network.subnets)),
            "security_group": shape(-1, len(network.security_groups)),
        }
