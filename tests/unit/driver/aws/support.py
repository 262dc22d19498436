# SPDX-License-Identifier: Apache-2.0
"""A region of answers that the test writes; no threads, and nothing is sent."""

from __future__ import annotations

import logging
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from botocore.exceptions import ClientError

from nodepool.config.objects import Config, DiskImage, Label
from nodepool.driver.aws.adapter import AwsAdapter
from nodepool.driver.aws.config import AwsProviderConfig
from nodepool.driver.aws.instances import AwsCreation
from nodepool.driver.aws.transport import AwsTransport
from nodepool.driver.statemachine.instance import for_node
from tests.support.manual_clock import ManualClock
from tests.support.manual_executor import ManualExecutor
from tests.support.quiet_inventory import QuietInventory

PROVIDER = "north"
NODE = "0000000042"
LOG = logging.LoggerAdapter(logging.getLogger("test"), {})
METADATA = for_node(NODE, "main", PROVIDER)
TAGS = [{"Key": key, "Value": value} for key, value in METADATA.items()]
IMAGE = {
    "ImageId": "ami-1",
    "Name": "debian",
    "State": "available",
    "CreationDate": "2026-01-01T00:00:00.000Z",
    "RootDeviceName": "/dev/xvda",
    "BlockDeviceMappings": [
        {"DeviceName": "/dev/sdb", "Ebs": {"SnapshotId": "snap-2", "Encrypted": True, "DeleteOnTermination": False}},
        {"DeviceName": "/dev/sdc", "VirtualName": "ephemeral0"},
        {"DeviceName": "/dev/xvda", "Ebs": {"SnapshotId": "snap-1", "VolumeSize": 8, "VolumeType": "gp2"}},
    ],
}
TYPE = {
    "InstanceType": "t3.medium",
    "VCpuInfo": {"DefaultVCpus": 2, "DefaultCores": 1},
    "MemoryInfo": {"SizeInMiB": 4096},
}


def quota(code: str, name: str, value: float) -> dict[str, Any]:
    """As Service Quotas shows it."""
    return {"QuotaCode": code, "QuotaName": name, "Value": value}


EC2_QUOTAS = [
    quota("L-1216C47A", "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances", 64.0),
    quota("L-34B43A08", "All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests", 32.0),
    quota("L-DB2E81BA", "Running On-Demand G and VT instances", 8.0),
    quota("L-43DA4232", "Running On-Demand High Memory instances", 4.0),
    quota("L-7212CCBC", "All P4, P3 and P2 Spot Instance Requests", 2.0),
    quota("L-C4BD4855", "All P5 Spot Instance Requests", 1.0),
    quota("L-NEWNEWNE", "Running On-Demand Qx instances", 3.0),
    quota("L-MACMACMA", "Running Dedicated mac2 Hosts", 1.0),
    quota("L-0263D0A3", "EC2-VPC Elastic IPs", 5.0),
]
EBS_QUOTAS = [quota("L-7A658B76", "Storage for General Purpose SSD (gp3) volumes, in TiB", 50.0)]


def error(code: str, message: str = "it says", status: int = 400) -> ClientError:
    """As botocore raises it."""
    answer: Any = {"Error": {"Code": code, "Message": message}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(answer, "Operation")


def instance(instance_id: str = "i-1", state: str = "running", **more: Any) -> dict[str, Any]:
    """As EC2 shows it."""
    return {"InstanceId": instance_id, "InstanceType": "t3.medium", "State": {"Name": state}, "Tags": TAGS, **more}


def host(host_id: str = "h-1", state: str = "available", **more: Any) -> dict[str, Any]:
    """As EC2 shows it."""
    return {"HostId": host_id, "State": state, "Tags": TAGS, "HostProperties": {"InstanceType": "mac2.metal"}, **more}


def shown(*instances: dict[str, Any]) -> dict[str, Any]:
    """An answer of DescribeInstances."""
    return {"Reservations": [{"Instances": [found]} for found in instances]}


class Region:
    """``answers`` has what calls do, by the method of botocore's client: a value is returned, an error raised, a
    function called with the arguments, of a list one after the other. ``calls`` has the arguments of each.
    """

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {
            "describe_instances": shown(),
            "describe_images": {"Images": [IMAGE]},
            "describe_instance_types": {"InstanceTypes": [TYPE]},
            "run_instances": {"Instances": [instance(state="pending")]},
            "terminate_instances": {},
            "describe_volumes": {"Volumes": []},
            "describe_snapshots": {"Snapshots": []},
            "describe_hosts": {"Hosts": []},
            "describe_launch_templates": {"LaunchTemplates": []},
            "list_service_quotas": [{"Quotas": EC2_QUOTAS}, {"Quotas": EBS_QUOTAS}],
        }
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.closed = False

    def __getattr__(self, name: str) -> Any:
        def call(**arguments: Any) -> Any:
            self.calls.append((name, arguments))
            answer = self.answers[name]
            if isinstance(answer, list):
                answer = answer.pop(0) if len(answer) > 1 else answer[0]
            if callable(answer):
                answer = answer(arguments)
            if isinstance(answer, Exception):
                raise answer
            return answer

        return call

    def close(self) -> None:
        self.closed = True

    def count(self, name: str) -> int:
        return Counter(called for called, _ in self.calls)[name]

    def last(self, name: str) -> dict[str, Any]:
        """Arguments of the latest call of a method."""
        return [arguments for called, arguments in self.calls if called == name][-1]


def section(label: dict[str, Any] | None = None, *, pool: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """A provider section with one pool and one label."""
    wanted = {"name": "small", "cloud-image": "debian", "instance-type": "t3.medium", "key-name": "zuul"}
    return {
        "name": PROVIDER,
        "driver": "aws",
        "region-name": "eu-north-1",
        "rate": 0,
        "cloud-images": [{"name": "debian", "image-id": "ami-1", "username": "admin"}],
        "pools": [{"name": "main", "labels": [{**wanted, **(label or {})}], **(pool or {})}],
        **more,
    }


def load(data: dict[str, Any]) -> AwsProviderConfig:
    """Load a section in a configuration that has its labels and images."""
    whole = Config()
    for image in data.get("diskimages", []):
        whole.diskimages[image["name"]] = DiskImage(image["name"])
    for pool in data["pools"]:
        for label in pool.get("labels", []):
            whole.labels[label["name"]] = Label(label["name"])
    made = AwsProviderConfig(data)
    made.getSchema()(data)
    made.load(whole)
    return made


class Rig:
    """An adapter without threads on a `Region`."""

    def __init__(self, data: dict[str, Any] | None = None) -> None:
        self.region = Region()
        self.clock = ManualClock()
        self.config = load(section() if data is None else data)
        transport = AwsTransport(PROVIDER, "eu-north-1", None, 0, lambda service: self.region, self.clock)
        self.adapter = AwsAdapter(self.config, transport)
        cloud = self.cloud = self.adapter.instances
        cloud.inventory = QuietInventory(PROVIDER, cloud.list_instances, lag_seconds=5.0, clock=self.clock)
        self.creators = cloud.creators = ManualExecutor()
        executor: ThreadPoolExecutor = ManualExecutor()  # type: ignore[assignment]
        cloud.others = cloud._terminations._executor = cloud.batch_tags._calls._executor = executor
        cloud.launches._executor = cloud.launches._orders._executor = self.creators

    @property
    def label(self) -> Any:
        return self.config.pools["main"].labels["small"]

    def creation(self, image_id: str | None = None, request: Any = None) -> AwsCreation:
        machine = self.adapter.getCreateStateMachine("np0000000042", self.label, image_id, METADATA, request, None, LOG)
        machine.clock = self.clock
        machine.since = machine.advanced_at = self.clock()
        return machine

    def show(self, *instances: dict[str, Any]) -> None:
        """The region has these instances, and they are listed a second later."""
        self.region.answers["describe_instances"] = shown(*instances)
        self.clock.now += 1
        self.cloud.inventory.refresh(complete=True)
