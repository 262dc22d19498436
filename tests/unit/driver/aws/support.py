# SPDX-License-Identifier: Apache-2.0
"""A region of answers that the test writes; no threads, nothing is sent, and time passes at once."""

from __future__ import annotations

import dataclasses
import hashlib
import logging
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

from botocore import xform_name
from botocore.exceptions import ClientError, ReadTimeoutError
from botocore.session import Session
from botocore.validate import ParamValidator

from nodepool import clock as nodepool_clock
from nodepool.driver.aws import AwsAdapter, AwsDriver
from nodepool.driver.aws.client import AwsTransport
from nodepool.driver.aws.images import AwsImages, ImageJob, image_tags
from nodepool.driver.aws.instances import AwsCreation
from nodepool.driver.statemachine import ImageFile
from nodepool.driver.statemachine.instance import for_node
from tests.support.manual_clock import ManualClock, ManualStop
from tests.support.manual_executor import ManualExecutor
from tests.support.provider_sections import DriverSections
from tests.support.quiet_inventory import QuietInventory
from tests.support.tables import driver_table

PROVIDER = "north"
BUILD = "b" * 32
NODE = "0000000042"
LOG = logging.LoggerAdapter(logging.getLogger("test"), {})
METADATA = for_node(NODE, "main", PROVIDER)
#: No answer to a call that AWS may have carried out.
SILENCE = ReadTimeoutError(endpoint_url="https://aws")


def tag_set(tags: dict[str, str]) -> list[dict[str, str]]:
    """Tags as AWS shows them."""
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def tags_in(found: list[dict[str, str]]) -> dict[str, str]:
    """The reverse."""
    return {tag["Key"]: tag["Value"] for tag in found}


TAGS = tag_set(METADATA)
IMAGE, TYPE, LIMITS = (driver_table("aws", name) for name in ("image", "type", "limits"))


def quotas(*limits: tuple[str, str, float]) -> dict[str, Any]:
    """An answer of Service Quotas."""
    return {"Quotas": [{"QuotaCode": code, "QuotaName": name, "Value": value} for code, name, value in limits]}


LIMITS_TOLD = [quotas(*LIMITS), quotas(("L-7A658B76", "Storage for General Purpose SSD (gp3) volumes, in TiB", 50.0))]


def error(code: str, message: str = "it says", status: int = 400) -> ClientError:
    """As botocore raises it."""
    answer: Any = {"Error": {"Code": code, "Message": message}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(answer, "Operation")


def rows(name: str) -> Any:
    """A table of ``tables.yaml``; see there for errors. Tags are a mapping, and ``<build>`` is `BUILD`."""
    return [read(row) for row in driver_table("aws", name)]


def read(cell: Any) -> Any:
    if isinstance(cell, dict):
        found = {key: read(value) for key, value in cell.items()}
        return {key: tag_set(value) if key == "Tags" else value for key, value in found.items()}
    if isinstance(cell, list):
        return [read(one) for one in cell]
    if cell == "no answer":
        return SILENCE
    if isinstance(cell, str) and cell.startswith("error "):
        code, _, message = cell.removeprefix("error ").partition(": ")
        code, _, status = code.partition(" ")
        return error(code, message or "it says", int(status or 400))
    return cell.replace("<build>", BUILD) if isinstance(cell, str) else cell


#: AWS has trouble of its own.
AWAY = error("InternalError", status=500)


def instance(instance_id: str = "i-1", state: str = "running", **more: Any) -> dict[str, Any]:
    """As EC2 shows it."""
    return {"InstanceId": instance_id, "InstanceType": "t3.medium", "State": {"Name": state}, "Tags": TAGS, **more}


def host(host_id: str = "h-1", state: str = "available", **more: Any) -> dict[str, Any]:
    """As EC2 shows it."""
    return {"HostId": host_id, "State": state, "Tags": TAGS, "HostProperties": {"InstanceType": "mac2.metal"}, **more}


def shown(*instances: dict[str, Any]) -> dict[str, Any]:
    """An answer of DescribeInstances."""
    return {"Reservations": [{"Instances": [found]} for found in instances]}


@cache
def shapes() -> dict[str, Any]:
    """What each call takes, by the method of botocore's client: its own models of the services."""
    session = Session()
    models = [session.get_service_model(name) for name in ("ec2", "ebs", "s3", "service-quotas")]
    return {
        xform_name(name): model.operation_model(name).input_shape for model in models for name in model.operation_names
    }


class Region:
    """``answers`` has what calls do, by the method of botocore's client: a value is returned, an error raised, a
    function called with the arguments, of a list one after the other; of others nothing is answered. ``calls`` has the
    arguments of each.

    :param checked: arguments must be valid by botocore's models.
    """

    def __init__(self, checked: bool = True) -> None:
        self.answers: dict[str, Any] = {
            "describe_images": {"Images": [IMAGE]},
            "describe_instance_types": {"InstanceTypes": [TYPE]},
            "run_instances": {"Instances": [instance(state="pending")]},
            "list_service_quotas": LIMITS_TOLD[:],
        }
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.closed = False
        self.checked = checked

    def __getattr__(self, name: str) -> Any:
        def call(**arguments: Any) -> Any:
            if self.checked and name in shapes():
                report = ParamValidator().validate(arguments, shapes()[name])
                assert not report.has_errors(), f"{name}: {report.generate_report()}"
            self.calls.append((name, arguments))
            answer = self.answers.get(name, {})
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
        return len(self.sent(name))

    def sent(self, name: str) -> list[dict[str, Any]]:
        """Arguments of each call of a method."""
        return [arguments for called, arguments in self.calls if called == name]

    def last(self, name: str) -> dict[str, Any]:
        return self.sent(name)[-1]

    def changes(self) -> list[list[Any]]:
        """Calls that only look left out: the method, and what it is about."""
        quiet = ("describe", "list")
        return [[name, next(iter(given.values()))] for name, given in self.calls if not name.startswith(quiet)]


def clock() -> ManualClock:
    """Of all tests here."""
    found = vars(nodepool_clock)["time"].monotonic
    assert isinstance(found, ManualClock)
    return found


class Paced(AwsTransport):
    """Sleeps by moving the clock."""

    def __init__(self, region: Region, rate: float = 0) -> None:
        super().__init__(PROVIDER, "eu-north-1", None, rate, lambda service: region)

    def sleep(self, seconds: float) -> None:
        clock().now += seconds


_SECTIONS = DriverSections(AwsDriver(), "aws")
load = _SECTIONS.load


def section(label: dict[str, Any] | None = None, *, pool: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """A provider section with one pool and one label; a setting of the label that is None is left out."""
    made = _SECTIONS.section(label, pool, **more)
    (given,) = made["pools"][0]["labels"]
    made["pools"][0]["labels"] = [{key: value for key, value in given.items() if value is not None}]
    return made


class Rig:
    """An adapter without threads on a `Region`.

    :param executor: makes all calls.
    """

    def __init__(
        self, data: dict[str, Any] | None = None, executor: ManualExecutor | None = None, rate: float = 0, **more: Any
    ) -> None:
        self.region = Region()
        self.region.answers |= more
        self.clock = clock()
        self.config = load(section() if data is None else data)
        self.transport = Paced(self.region, rate)
        self.adapter = AwsAdapter(self.config, self.transport)
        cloud = self.cloud = self.adapter.instances
        cloud.inventory = QuietInventory(PROVIDER, cloud.list_instances, lag_seconds=5.0)
        # Private: nothing takes an executor, and in threads of its own a step would have no observable end.
        self.executor = executor or ManualExecutor()
        others: ThreadPoolExecutor = self.executor  # type: ignore[assignment]
        # The test runs the calls of its threads itself, one after the other.
        cloud.others = cloud._terminations._executor = cloud.batch_tags._calls._executor = others  # noqa: SLF001
        cloud.creators = cloud.launches._executor = cloud.launches._calls._executor = self.executor  # noqa: SLF001

    @property
    def label(self) -> Any:
        return self.config.pools["main"].labels["small"]

    def creation(self, node_id: str = NODE, request: Any = None) -> AwsCreation:
        tags = for_node(node_id, "main", PROVIDER)
        machine = self.adapter.getCreateStateMachine(f"np{node_id}", self.label, None, tags, request, None, LOG)
        assert isinstance(machine, AwsCreation)
        return machine

    def advance(self, creation: AwsCreation, times: int = 2, seconds: float = 0) -> Any:
        """Steps of a launch, with pauses."""
        made = None
        for _ in range(times):
            made = creation.advance()
            self.clock.now += seconds
        return made

    def deletion(self, stored: Any) -> Any:
        return self.adapter.getDeleteStateMachine(stored, LOG)

    def show(self, *instances: dict[str, Any]) -> None:
        """The region has these instances, and they are listed a second later."""
        self.region.answers["describe_instances"] = shown(*instances)
        self.clock.now += 1
        self.cloud.inventory.refresh(complete=True)


# -- uploads of images --

BUCKET = "images"
NAME = "debian-1"
IDS = {"nodepool_provider_name": PROVIDER, "nodepool_build_id": BUILD, "nodepool_upload_id": "0000000007"}
CONTENT = b"content"


class ImageRig(Rig):
    """A provider with a disk image ``debian``, in a region that takes uploads.

    :param image: more of the image's section.
    :param more: of the provider's section.
    """

    def __init__(self, directory: Path, image: dict[str, Any] | None = None, **more: Any) -> None:
        disk = {"name": "debian", **(image or {})}
        super().__init__(section(**{"object-storage": {"bucket-name": BUCKET}, "diskimages": [disk], **more}))
        self.path = directory / "image"
        self.path.write_bytes(CONTENT)
        self.stopped = self.transport.stopped = ManualStop(self.clock)
        self.images = AwsImages(self.config, self.adapter.client)
        self.region.answers |= {
            "create_multipart_upload": {"UploadId": "u1"},
            "upload_part": {"ETag": '"e"'},
            "head_object": {"ContentLength": len(CONTENT), "ETag": '"e"'},
            "start_snapshot": {"SnapshotId": "snap-1"},
            "register_image": {"ImageId": "ami-1"},
        }

    def upload(self, image_format: str = "raw", sha256: str | None = None) -> str:
        image = self.config.diskimages["debian"]
        return self.images.upload(ImageFile(image, NAME, str(self.path), image_format, IDS, None, sha256))

    def job(self, **more: Any) -> ImageJob:
        """An upload of the file."""
        image, size = self.config.diskimages["debian"], self.path.stat().st_size
        checksum = hashlib.sha256(self.path.read_bytes()).hexdigest()
        job = ImageJob(NAME, str(self.path), size, "raw", image, image_tags(image, IDS), checksum)
        return dataclasses.replace(job, **more)
