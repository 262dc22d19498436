# SPDX-License-Identifier: Apache-2.0
"""IBM's virtual private cloud, as far as the released driver asks it."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any, ClassVar

from tests.functional.released_drivers.cloud import Surroundings
from tests.functional.released_drivers.http_double import Answer, Call
from tests.functional.released_drivers.recording import RecordingCloud, body_answer

REGION = "us-south"
ZONE = "us-south-1"
API = f"https://{REGION}.iaas.cloud.ibm.com/v1"
PROFILE = {
    "name": "bx2-2x8",
    "family": "balanced",
    "vcpu_count": {"type": "fixed", "value": 2},
    "memory": {"type": "fixed", "value": 8},
}


def web_token() -> str:
    """A JSON web token that nobody signed: the client reads from it how long it is good."""
    parts = [{"alg": "none", "typ": "JWT"}, {"iat": 1700000000, "exp": 4102444800}]
    encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts]
    return ".".join([*encoded, "c2lnbmF0dXJl"])


class IbmVpc(RecordingCloud):
    """A region with one private cloud."""

    driver: ClassVar[str] = "ibmvpc"
    hosts: ClassVar[tuple[str, ...]] = (
        f"{REGION}.iaas.cloud.ibm.com",
        "iam.cloud.ibm.com",
        "resource-controller.cloud.ibm.com",
    )

    def __init__(self, surroundings: Surroundings) -> None:
        super().__init__(surroundings)
        self._groups: list[dict[str, str]] = []
        self._instances: dict[str, dict[str, Any]] = {}
        self._credentials = self.directory / "ibm.env"
        self._credentials.write_text("VPC_AUTH_TYPE=iam\nVPC_APIKEY=key\n", encoding="ascii")
        token = {"access_token": web_token(), "expires_in": 3600, "expiration": 4102444800, "token_type": "Bearer"}
        self.route("POST", "/identity/token", body_answer(token))
        self.route("GET", "/v2/resource_groups", self._list_groups)
        self.route("POST", "/v2/resource_groups", self._create_group)
        self._collection("vpcs", [{"id": "vpc-1", "name": "lab"}])
        self._collection("subnets", [{"id": "subnet-1", "name": "default", "zone": {"name": ZONE}}])
        self._collection("keys", [{"id": "key-1", "name": "zuul"}])
        image = {"id": "image-1", "name": "debian-12", "status": "available", "owner_type": "provider"}
        self._collection("images", [image])
        self._collection("floating_ips", [])
        self.route("GET", "/v1/instance/profiles", body_answer({"profiles": [PROFILE]}))
        self.route("GET", "/v1/instances", self._list)
        self.route("POST", "/v1/instances", self._create)
        self.route("DELETE", "/v1/instances/(.+)", self._delete)

    def section(self) -> dict[str, Any]:
        image = {"name": "debian", "username": "root", "image-name": "debian-12", "keys": ["zuul"]}
        label = {"name": self.label, "cloud-image": "debian", "profile": "bx2-2x8"}
        pool = {"name": self.pool, "max-servers": 5, "host-key-checking": False, "labels": [label]}
        where = {"vpc": "lab", "region": REGION, "zone": ZONE, "subnet": "default"}
        quota = {"instances": 10, "cores": 20, "ram": 100}
        files = {"credentials-file": str(self._credentials)}
        return {**where, **files, "quota": quota, "rate": 50, "cloud-images": [image], "pools": [pool]}

    def machines(self) -> set[str]:
        return {instance["name"].removeprefix("np") for instance in list(self._instances.values())}

    def check_node(self, node: Mapping[str, Any]) -> None:
        assert (node["cloud"], node["region"], node["az"]) == ("IBM", REGION, ZONE)
        assert node["interface_ip"] == node["private_ipv4"] == "10.0.0.6"
        assert node["resources"] == {"instances": 1, "cores": 2, "ram": 8}
        sent = self.asked("POST", "^/v1/instances$")[-1].json()
        assert sent["name"] == node["external_id"]
        assert (sent["profile"], sent["image"], sent["zone"]) == (
            {"name": "bx2-2x8"},
            {"id": "image-1"},
            {"name": ZONE},
        )
        (group,) = [group["name"] for group in self._groups if group["id"] == sent["resource_group"]["id"]]
        assert group == f"np_{self.provider}_{self.pool}"

    def _collection(self, name: str, things: list[dict[str, Any]]) -> None:
        self.route("GET", f"/v1/{name}", body_answer({name: things, "limit": 50, "total_count": len(things)}))

    def _list_groups(self, call: Call) -> Answer:
        return Answer(body={"resources": self._groups})

    def _create_group(self, call: Call) -> Answer:
        group = {"id": f"group-{len(self._groups) + 1}", "name": call.json()["name"]}
        self._groups.append(group)
        return Answer(201, group)

    def _list(self, call: Call) -> Answer:
        return Answer(body={"instances": list(self._instances.values()), "limit": 50})

    def _create(self, call: Call) -> Answer:
        sent = call.json()
        number = len(self.asked("POST", "^/v1/instances$"))
        key = f"instance-{number}"
        interface = {
            "id": "nic-1",
            "name": "eth0",
            "primary_ipv4_address": "10.0.0.6",
            "primary_ip": {"address": "10.0.0.6"},
        }
        made = {
            **sent,
            "id": key,
            "href": f"{API}/instances/{key}",
            "status": "running",
            "primary_network_interface": interface,
            "network_interfaces": [interface],
        }
        self._instances[key] = made
        return Answer(201, made)

    def _delete(self, call: Call, key: str) -> Answer:
        return Answer(204) if self._instances.pop(key, None) else Answer(404, {"errors": [{"code": "not_found"}]})
