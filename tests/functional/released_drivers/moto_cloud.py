# SPDX-License-Identifier: Apache-2.0
"""AWS as moto plays it, in a process of its own; doubles answer what it lacks: Service Quotas, tasks of imports."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar
from urllib.error import HTTPError
from urllib.parse import parse_qsl
from urllib.request import Request, urlopen

import boto3

from tests.functional.released_drivers.cloud import Cloud, Surroundings
from tests.functional.released_drivers.http_double import Answer, Call, HttpDouble
from tests.support.ports import free_ports
from tests.support.process import ChildProcess

REGION = "us-east-1"
BUCKET = "nodepool-uploads"
#: Limits of the account: on-demand and spot instances of the standard families, in vCPUs; storage of gp3 in TiB.
QUOTAS = {"ec2": {"L-1216C47A": 64.0, "L-34B43A08": 64.0}, "ebs": {"L-7A658B76": 50.0}}


def quotas(call: Call) -> Answer:
    """ListServiceQuotas, in pages of one."""
    asked = call.json()
    codes = list(QUOTAS.get(asked["ServiceCode"], {}).items())
    place = int(asked.get("NextToken") or 0)
    page = [
        {"ServiceCode": asked["ServiceCode"], "QuotaCode": code, "QuotaName": code, "Value": value}
        for code, value in codes[place : place + 1]
    ]
    more = {"NextToken": str(place + 1)} if place + 1 < len(codes) else {}
    return Answer(body={"Quotas": page, **more}, headers={"Content-Type": "application/x-amz-json-1.1"})


#: What moto does not have, with the list in its answer: there is nothing in it.
IMPORT_TASKS = {
    "DescribeImportSnapshotTasks": "importSnapshotTaskSet",
    "DescribeImportImageTasks": "importImageTaskSet",
}
KEPT_HEADERS = ("authorization", "content-type", "x-amz-date")


def no_tasks(action: str) -> Answer:
    """There is no import."""
    name = f"{action}Response"
    text = f'<{name} xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><{IMPORT_TASKS[action]}/></{name}>'
    return Answer(body=text.encode(), headers={"Content-Type": "text/xml"})


class Moto(Cloud):
    """A region with one image."""

    driver: ClassVar[str] = "aws"
    kind: ClassVar[str] = "moto"

    def __init__(self, surroundings: Surroundings) -> None:
        super().__init__(surroundings)
        (port,) = free_ports(1)
        self._url = f"http://127.0.0.1:{port}"
        log = self.directory / "moto.log"
        self._process = ChildProcess([sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)], log)
        self._quotas = HttpDouble(quotas)
        self._ec2 = HttpDouble(self._answer)
        self._image = ""
        self._foreign = ""
        keys = {"aws_access_key_id": "testing", "aws_secret_access_key": "testing", "region_name": REGION}
        self._session = boto3.Session(**keys)
        self.environment = {
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_ENDPOINT_URL": self._url,
            "AWS_ENDPOINT_URL_EC2": self._ec2.url,
            "AWS_ENDPOINT_URL_SERVICE_QUOTAS": self._quotas.url,
        }

    def section(self) -> dict[str, Any]:
        label = {
            "name": self.label,
            "cloud-image": "debian",
            "instance-type": "t3.medium",
            "key-name": "zuul",
            "volume-type": "gp3",
            "volume-size": 40,
            "tags": {"team": "ci"},
            "dynamic-tags": {"tenant": "{request.tenant_name}"},
        }
        return {
            "region-name": REGION,
            "rate": 50,
            "object-storage": {"bucket-name": BUCKET},
            "cloud-images": [{"name": "debian", "image-id": self._image or "ami-00000000", "username": "admin"}],
            "pools": [{"name": self.pool, "max-servers": 5, "host-key-checking": False, "labels": [label]}],
        }

    def start(self) -> None:
        self._quotas.start()
        self._ec2.start()
        self._process.start_until("moto", self._answers)
        self._client("s3").create_bucket(Bucket=BUCKET)
        self._client("ec2").import_key_pair(
            KeyName="zuul", PublicKeyMaterial=self.surroundings.sshd.host_keys[0].encode()
        )
        self._image = self._client("ec2").describe_images(Owners=["amazon"])["Images"][0]["ImageId"]

    def stop(self) -> None:
        self._process.stop()
        self._quotas.stop()
        self._ec2.stop()

    def machines(self) -> set[str]:
        return {tags["nodepool_node_id"] for _, tags in self._instances() if tags.get("nodepool_node_id")}

    def check_node(self, node: Mapping[str, Any]) -> None:
        assert (node["cloud"], node["region"], node["username"]) == ("AWS", REGION, "admin")
        assert node["az"].startswith(REGION)
        assert node["interface_ip"] == node["public_ipv4"]
        assert node["node_properties"] == {"spot": False, "fleet": False}
        assert node["resources"]["L-1216C47A"] == 2
        ((_, tags),) = [found for found in self._instances() if found[0] in str(node["external_id"])]
        assert (tags["team"], tags["tenant"], tags["nodepool_provider_name"]) == ("ci", "tenant", self.provider)

    def leave(self) -> set[str]:
        """A volume and a snapshot of a node of ours, and a volume of somebody else's."""
        ec2 = self._client("ec2")

        def volume(provider: str) -> str:
            tags = {
                "nodepool_node_id": "9999999999",
                "nodepool_pool_name": self.pool,
                "nodepool_provider_name": provider,
            }
            named = [{"Key": key, "Value": value} for key, value in tags.items()]
            given = [{"ResourceType": "volume", "Tags": named}]
            made = ec2.create_volume(AvailabilityZone=f"{REGION}a", Size=1, TagSpecifications=given)
            return str(made["VolumeId"])

        self._foreign = volume("other")
        return {volume(self.provider)}

    def left(self) -> set[str]:
        there = {volume["VolumeId"] for volume in self._client("ec2").describe_volumes()["Volumes"]}
        if self._foreign not in there:
            raise RuntimeError("a volume that is not ours was deleted")
        return there

    def _instances(self) -> Iterable[tuple[str, dict[str, str]]]:
        """Id and tags of each instance that is not terminated."""
        for reservation in self._client("ec2").describe_instances()["Reservations"]:
            for instance in reservation["Instances"]:
                if instance["State"]["Name"] != "terminated":
                    yield instance["InstanceId"], {tag["Key"]: tag["Value"] for tag in instance.get("Tags", [])}

    def _answer(self, call: Call) -> Answer:
        """Hands a call of EC2 on to moto, unless it is one that moto does not know."""
        action = dict(parse_qsl(call.body.decode())).get("Action", "")
        if action in IMPORT_TASKS:
            return no_tasks(action)
        headers = {name: value for name, value in call.headers.items() if name in KEPT_HEADERS}
        request = Request(f"{self._url}{call.path}", call.body, headers, method=call.method)
        try:
            with urlopen(request, timeout=60) as answer:
                return Answer(answer.status, answer.read(), {"Content-Type": "text/xml"})
        except HTTPError as error:
            with error:
                return Answer(error.code, error.read(), {"Content-Type": "text/xml"})

    def _client(self, service: str) -> Any:
        return self._session.client(service, endpoint_url=self._url)

    def _answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", int(self._url.rpartition(":")[2])), 1).close()
        except OSError:
            return False
        return True
