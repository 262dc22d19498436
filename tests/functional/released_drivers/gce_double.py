# SPDX-License-Identifier: Apache-2.0
"""Google Compute Engine, as far as the released driver asks it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from typing import Any, ClassVar

from tests.functional.released_drivers.cloud import Surroundings
from tests.functional.released_drivers.http_double import Answer, Call
from tests.functional.released_drivers.recording import RecordingCloud, body_answer

PROJECT = "/compute/v1/projects/lab"
ZONE = f"{PROJECT}/zones/us-central1-a"
#: The real sshd answers there.
ADDRESS = "127.4.0.1"
LINK = "https://www.googleapis.com"
LIMITS = [{"metric": "CPUS", "limit": 24.0, "usage": 0.0}, {"metric": "INSTANCES", "limit": 24.0, "usage": 0.0}]


class Gce(RecordingCloud):
    """A zone of a project."""

    driver: ClassVar[str] = "gce"
    hosts: ClassVar[tuple[str, ...]] = ("compute.googleapis.com", "www.googleapis.com", "oauth2.googleapis.com")

    def __init__(self, surroundings: Surroundings) -> None:
        super().__init__(surroundings)
        self._instances: dict[str, dict[str, Any]] = {}
        key = self.directory / "google.json"
        self.environment["GOOGLE_APPLICATION_CREDENTIALS"] = str(key)
        command = ["openssl", "genrsa", "-traditional", "2048"]
        private = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
        account = {
            "type": "service_account",
            "project_id": "lab",
            "private_key_id": "1",
            "private_key": private,
            "client_email": "nodepool@lab.iam.gserviceaccount.com",
            "client_id": "1",
            "token_uri": "https://oauth2.googleapis.com/token",
        }
        key.write_text(json.dumps(account), encoding="utf-8")
        token = {"access_token": "token", "expires_in": 3600, "token_type": "Bearer"}
        self.route("POST", "/token", body_answer(token))
        link = f"{LINK}{ZONE}/machineTypes/n1-standard-2"
        machine = {"name": "n1-standard-2", "guestCpus": 2, "memoryMb": 7680, "selfLink": link}
        self.route("GET", f"{ZONE}/machineTypes/n1-standard-2", body_answer(machine))
        image = {"name": "debian-12", "selfLink": f"{LINK}/compute/v1/projects/debian-cloud/global/images/debian-12"}
        self.route("GET", "/compute/v1/projects/debian-cloud/global/images/family/debian-12", body_answer(image))
        self.route("GET", f"{PROJECT}/regions/us-central1", body_answer({"name": "us-central1", "quotas": LIMITS}))
        self.route("POST", f"{ZONE}/instances", self._create)
        self.route("GET", f"{ZONE}/instances", self._list)
        self.route("DELETE", f"{ZONE}/instances/(.+)", self._delete)

    def section(self) -> dict[str, Any]:
        image = {
            "name": "debian",
            "image-project": "debian-cloud",
            "image-family": "debian-12",
            "username": "zuul",
            "key": "ssh-ed25519 AAAA",
            "connection-port": self.surroundings.sshd.port,
        }
        label = {"name": self.label, "cloud-image": "debian", "instance-type": "n1-standard-2", "volume-size": 20}
        pool = {"name": self.pool, "max-servers": 5, "labels": [label]}
        where = {"region": "us-central1", "zone": "us-central1-a", "project": "lab"}
        return {**where, "cloud-images": [image], "pools": [pool]}

    def machines(self) -> set[str]:
        metadata = [_metadata(instance) for instance in list(self._instances.values())]
        return {items["nodepool_node_id"] for items in metadata if "nodepool_node_id" in items}

    def check_node(self, node: Mapping[str, Any]) -> None:
        assert (node["cloud"], node["region"], node["az"]) == ("Google", "us-central1", "us-central1-a")
        assert (node["public_ipv4"], node["private_ipv4"]) == (ADDRESS, "10.0.0.5")
        assert node["interface_ip"] == node["public_ipv4"]
        assert set(node["host_keys"]) <= set(self.surroundings.sshd.host_keys)
        assert node["resources"] == {"instances": 1, "cores": 2, "ram": 7680}
        sent = self.asked("POST", "/instances$")[-1].json()
        assert sent["name"] == node["external_id"]
        assert sent["machineType"].endswith("machineTypes/n1-standard-2")
        assert _metadata(sent)["ssh-keys"] == "zuul:ssh-ed25519 AAAA"
        assert _metadata(sent)["nodepool_provider_name"] == self.provider

    def _create(self, call: Call) -> Answer:
        sent = call.json()
        interface = {"networkIP": "10.0.0.5", "accessConfigs": [{"name": "External NAT", "natIP": ADDRESS}]}
        made = {**sent, "status": "RUNNING", "networkInterfaces": [interface], "zone": f"{LINK}{ZONE}"}
        self._instances[sent["name"]] = made
        return self._operation("insert")

    def _delete(self, call: Call, name: str) -> Answer:
        if self._instances.pop(name, None) is None:
            return Answer(404, {"error": {"code": 404, "message": "not found"}})
        return self._operation("delete")

    def _list(self, call: Call) -> Answer:
        return Answer(body={"kind": "compute#instanceList", "items": list(self._instances.values())})

    @staticmethod
    def _operation(kind: str) -> Answer:
        return Answer(
            body={"kind": "compute#operation", "name": "operation-1", "operationType": kind, "status": "DONE"}
        )


def _metadata(instance: Mapping[str, Any]) -> dict[str, str]:
    return {item["key"]: item["value"] for item in instance["metadata"]["items"]}
