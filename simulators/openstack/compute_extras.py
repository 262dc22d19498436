# SPDX-License-Identifier: Apache-2.0
"""Nova's smaller resources: flavors, limits and quotas, zones, key pairs, interfaces and volumes of a server."""

from __future__ import annotations

from functools import partial

from simulators.openstack.cloud import Cloud
from simulators.openstack.messages import Answer, Json, Request, json_answer
from simulators.openstack.routing import Service


class ComputeExtras:
    """Handlers that `register` adds to the compute service."""

    def __init__(self, cloud: Cloud) -> None:
        self.cloud = cloud

    def register(self, service: Service, prefix: str) -> None:
        """Adds the operations below ``prefix``."""
        service.route("GET", f"{prefix}/flavors/detail", "list_flavors", partial(self._list_flavors, service))
        service.route("GET", f"{prefix}/flavors", "list_flavors", partial(self._list_flavors, service))
        service.route("GET", f"{prefix}/flavors/{{}}", "get_flavor", self._get_flavor)
        service.route("GET", f"{prefix}/flavors/{{}}/os-extra_specs", "get_extra_specs", self._extra_specs)
        service.route("GET", f"{prefix}/limits", "limits", self._limits)
        service.route("GET", f"{prefix}/os-quota-sets/{{}}", "quota_set", self._quota_set)
        service.route("GET", f"{prefix}/os-availability-zone", "list_zones", self._zones)
        service.route("GET", f"{prefix}/os-keypairs", "list_keypairs", self._list_keypairs)
        service.route("POST", f"{prefix}/os-keypairs", "create_keypair", self._create_keypair)
        service.route("GET", f"{prefix}/os-keypairs/{{}}", "get_keypair", self._get_keypair)
        service.route("DELETE", f"{prefix}/os-keypairs/{{}}", "delete_keypair", self._delete_keypair)
        service.route("GET", f"{prefix}/servers/{{}}/os-interface", "list_interfaces", self._interfaces)
        service.route("GET", f"{prefix}/servers/{{}}/os-volume_attachments", "list_attachments", self._attachments)
        service.route("GET", f"{prefix}/servers/{{}}/os-security-groups", "list_server_groups", self._security_groups)
        service.route("GET", f"{prefix}/extensions", "list_extensions", self._extensions)

    def _list_flavors(self, service: Service, request: Request, _values: list[str]) -> Answer:
        flavors = self.cloud.compute.flavors
        # Nova has no filter by name; `is_public` and others are for administrators.
        query = {name: values for name, values in request.query.items() if name in ("limit", "marker")}
        page, marker = flavors.page(query, self.cloud.core.knobs.page_limit, service.more())
        return Answer(body=flavors.list_text(page, service.links(request, marker)))

    def _get_flavor(self, _request: Request, values: list[str]) -> Answer:
        return json_answer({"flavor": self.cloud.compute.flavors.get(values[0])})

    def _extra_specs(self, _request: Request, values: list[str]) -> Answer:
        return json_answer({"extra_specs": self.cloud.compute.flavors.get(values[0])["extra_specs"]})

    def _limits(self, _request: Request, _values: list[str]) -> Answer:
        absolute = {
            **self.cloud.limit("maxTotalInstances", "instances"),
            **self.cloud.limit("maxTotalCores", "cores"),
            **self.cloud.limit("maxTotalRAMSize", "ram"),
            "totalInstancesUsed": len(self.cloud.compute.servers),
            "totalCoresUsed": self.cloud.compute.used_cores,
            "totalRAMUsed": self.cloud.compute.used_ram,
            "maxServerMeta": 128,
            "maxTotalKeypairs": 100,
            "maxServerGroups": 10,
            "maxServerGroupMembers": 10,
            "totalServerGroupsUsed": 0,
        }
        return json_answer({"limits": {"rate": [], "absolute": absolute}})

    def _quota_set(self, _request: Request, values: list[str]) -> Answer:
        quota = self.cloud.core.knobs.quota
        limits = {"instances": quota.instances, "cores": quota.cores, "ram": quota.ram, "key_pairs": 100}
        return json_answer({"quota_set": {"id": values[0], "metadata_items": 128} | limits})

    def _zones(self, _request: Request, _values: list[str]) -> Answer:
        zones = [
            {"zoneName": name, "zoneState": {"available": True}, "hosts": None}
            for name in self.cloud.core.knobs.availability_zones
        ]
        return json_answer({"availabilityZoneInfo": zones})

    def _list_keypairs(self, _request: Request, _values: list[str]) -> Answer:
        return json_answer({"keypairs": [{"keypair": entry["keypair"]} for entry in self.cloud.compute.keypairs]})

    def _create_keypair(self, request: Request, _values: list[str]) -> Answer:
        body = request.member("keypair")
        entry = self.cloud.add_keypair(str(body.get("name", "")), str(body.get("public_key", "")))
        return json_answer({"keypair": entry | {"user_id": self.cloud.core.user_id}}, 201)

    def _get_keypair(self, _request: Request, values: list[str]) -> Answer:
        return json_answer({"keypair": self.cloud.compute.keypairs.get(values[0])["keypair"]})

    def _delete_keypair(self, _request: Request, values: list[str]) -> Answer:
        self.cloud.compute.keypairs.remove(values[0])
        return Answer(202)

    def _interfaces(self, _request: Request, values: list[str]) -> Answer:
        server = self.cloud.compute.servers.get(values[0])
        entries: list[Json] = [
            {
                "port_id": port["id"],
                "net_id": port["network_id"],
                "mac_addr": port["mac_address"],
                "port_state": port["status"],
                "fixed_ips": port["fixed_ips"],
            }
            for port in self.cloud.network.ports_of(server.id)
        ]
        return json_answer({"interfaceAttachments": entries})

    def _attachments(self, _request: Request, values: list[str]) -> Answer:
        server = self.cloud.compute.servers.get(values[0])
        entries = [{"id": key, "volumeId": key, "serverId": server.id, "device": "/dev/vda"} for key in server.volumes]
        return json_answer({"volumeAttachments": entries})

    def _security_groups(self, _request: Request, values: list[str]) -> Answer:
        names = self.cloud.compute.servers.get(values[0]).security_groups
        groups = self.cloud.network.security_groups
        entries = [groups.named(name) for name in names]
        return json_answer({"security_groups": [{"id": entry["id"], "name": entry["name"]} for entry in entries]})

    def _extensions(self, _request: Request, _values: list[str]) -> Answer:
        return json_answer({"extensions": []})
