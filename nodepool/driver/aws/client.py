# SPDX-License-Identifier: Apache-2.0
"""The connection to AWS, and the calls of EC2, EBS and Service Quotas (`Ec2`) that neither make nor end instances.

First one call to one service of AWS (`AwsTransport`): credentials, pace, and errors that can be distinguished. botocore
finds the credentials, signs, and knows the endpoints. It does not repeat calls: what is throttled waits here, as a
class (AW-15), and what got no answer is the business of who called. Then the calls. Lists always say how long their
pages are: AWS takes twice as many of these.
"""

from __future__ import annotations

import base64
import contextlib
import logging
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final
from xml.etree import ElementTree

from nodepool.clock import monotonic
from nodepool.driver.aws import types
from nodepool.driver.framework.cloud_errors import CloudAway, CloudRefused, CloudSetup, one_line
from nodepool.driver.framework.http.rest_calls import REFUSED_SECONDS, keep_metadata_direct
from nodepool.driver.framework.rate import BucketSize, Call, RateClasses
from nodepool.driver.statemachine.instance import PROVIDER_KEY, foreign

log = logging.getLogger("nodepool.driver.aws.client")

#: Attempts of a call that AWS puts off.
THROTTLED_ATTEMPTS: Final = 6
#: A list has no more pages than these: an answer that leads in a circle must end.
MOST_PAGES: Final = 1000
#: Arguments for the next page of most lists -> where a page has them.
NEXT_TOKEN: Final = {"NextToken": "NextToken"}
CONNECT_SECONDS: Final = 10
READ_SECONDS: Final = 45
#: botocore keeps 10 by itself, which is less than the threads of a provider.
CONNECTIONS: Final = 32

#: Classes of calls as EC2 counts them, and what it takes of each at once.
READ: Final = "read"
RUN: Final = "run"
TERMINATE: Final = "terminate"
TAG: Final = "tag"
CHANGE: Final = "change"
QUOTAS: Final = "quotas"
STORE: Final = "store"
_BURSTS: Final = {RUN: 5, TERMINATE: 100, TAG: 100, CHANGE: 50, QUOTAS: 5, READ: 100}
#: Only this part of them is used: calls that were sent apart may arrive together, and one that AWS puts off costs more
#: than it gains.
_BURST_PART: Final = 0.9
#: How much faster than calls that make instances AWS lets those of a class come in the long run: 2 a second of those,
#: 5 that terminate or change something else, 10 that set tags, 20 that read.
_SHARES: Final = {RUN: 1.0, TERMINATE: 2.5, TAG: 5.0, CHANGE: 2.5, QUOTAS: 1.0, READ: 10.0}

#: Exceptions of botocore for calls that never left this machine, and for credentials that are not there.
_NOT_SENT: Final = ("EndpointConnectionError", "ConnectTimeoutError", "ProxyConnectionError")
_REACH: Final = "correct region-name or the endpoint, or let this machine reach it: network, firewall, proxy"
_NO_LOGIN: Final = ("Credential", "SSO", "Token", "Login", "ProfileNotFound")
#: botocore writes tokens of sessions to its log at DEBUG.
_TALKATIVE: Final = ("botocore", "boto3")


def class_sizes(rate: float) -> dict[str, BucketSize]:
    """Buckets of the classes.

    :param rate: calls per second that make instances, in the long run; 0 = no limit.
    """
    sizes = {kind: BucketSize(_BURST_PART * burst, _SHARES[kind] * rate) for kind, burst in _BURSTS.items()}
    # Data of images are limited by the network.
    return {**sizes, STORE: BucketSize(1, 0)}


class AwsTransport:
    """Calls of one provider. Thread-safe; all calls block. Making it imports botocore, and asks no one.

    ``_lock`` is held while a client is made: sessions are not thread-safe, and the first one may ask the machine for
    its credentials. A client that is there is used without it.

    :param provider: name, for errors.
    :param profile: of boto's files; None = boto chooses.
    :param rate: changing calls per second.
    :param make_client: for tests: makes the client of a service.
    """

    def __init__(
        self,
        provider: str,
        region: str,
        profile: str | None,
        rate: float,
        make_client: Callable[[str], Any] | None = None,
    ) -> None:
        self.provider = provider
        self.region = region
        self._profile = profile
        self._make_client = make_client or self._client_of_botocore
        self._classes = RateClasses(class_sizes(rate), BucketSize(1, rate), sleep=self.sleep)
        self.stopped = threading.Event()
        self._lock = threading.Lock()
        self._session: Any = None
        self._clients: dict[str, Any] = {}
        #: Until when no credentials are looked for again. ``_lock`` guards it.
        self._without_login_until = float("-inf")
        if make_client is None:
            import botocore.session  # noqa: F401 - a provider whose library is broken shall not start

            keep_metadata_direct()

            for name in _TALKATIVE:
                logger = logging.getLogger(name)
                logger.setLevel(max(logger.level, logging.INFO))

    def close(self) -> None:
        """Calls that wait for their turn end; no new ones begin. Those under way may end."""
        self.stopped.set()
        with self._lock:
            clients, self._clients = list(self._clients.values()), {}
        for client in clients:
            client.close()

    def call(
        self,
        service: str,
        kind: str,
        operation: str,
        arguments: dict[str, Any] | Callable[[], dict[str, Any]],
        permit: Callable[[], None] = lambda: None,
        turn: Call | None = None,
    ) -> dict[str, Any]:
        """Make one call. One that AWS puts off is made again later.

        :param service: such as ``ec2``.
        :param kind: class of the call.
        :param operation: as AWS names it, such as ``RunInstances``.
        :param arguments: or a function that is asked for them when the turn has come.
        :param permit: asked when the turn has come, each time; raises an error if the call must not be made any more.
        :param turn: for the first attempt, if it has come already: see `wait_turn`.
        :raises CloudRefused: AWS refuses it.
        :raises CloudAway: no answer, or AWS has trouble of its own, or does not accept the credentials.
        """
        given: dict[str, Any] | None = None
        attempts = 0
        while True:
            turn = turn or self.wait_turn(kind, operation)
            permit()
            if given is None:
                given = arguments() if callable(arguments) else arguments
            try:
                answer = self._send(service, operation, given)
            except CloudAway as error:
                if error.code not in types.THROTTLED:
                    raise
                seconds = turn.throttled(None)
                log.info(
                    "Provider %s: %s is put off by AWS (%s), no calls of its class for %.1f s",
                    *(self.provider, operation, error.code, seconds),
                )
                attempts += 1
                if attempts == THROTTLED_ATTEMPTS:
                    raise
                turn = None
            else:
                turn.worked()
                return answer

    def pages(
        self,
        service: str,
        kind: str,
        operation: str,
        arguments: dict[str, Any],
        key: str,
        marks: Mapping[str, str] = NEXT_TOKEN,
    ) -> Iterator[dict[str, Any]]:
        """The entries of a list, over all its pages; each page is a call.

        :param key: of the list in the answers.
        :param marks: arguments for the next page -> where a page has them.
        """
        given = dict(arguments)
        for _ in range(MOST_PAGES):
            answer = self.call(service, kind, operation, given)
            yield from answer.get(key) or ()
            following = {name: answer[told] for name, told in marks.items() if answer.get(told)}
            if not answer.get("IsTruncated", bool(following)):
                return
            given |= following
        raise CloudAway(f"Provider {self.provider}: {operation} failed: the list does not end")

    def wait_turn(self, kind: str, operation: str) -> Call:
        """Block until a call of a class may begin; give what is returned to `call`.

        :raises CloudAway: the provider was stopped.
        """
        if self.stopped.is_set():
            raise self._stopped(operation)
        return self._classes.wait(kind)

    def sleep(self, seconds: float) -> None:
        """Block for some seconds.

        :raises CloudAway: the provider was stopped.
        """
        if self.stopped.wait(seconds):
            raise self._stopped("a call")

    # -- inside --

    def _send(self, service: str, operation: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """One attempt. Errors of botocore become those of `nodepool.driver.aws.types`."""
        from botocore import xform_name
        from botocore.exceptions import BotoCoreError, ClientError
        from botocore.parsers import ResponseParserError

        head = f"Provider {self.provider}: {operation} failed"
        started = monotonic()
        try:
            # Of botocore's clients: ``run_instances`` for ``RunInstances``.
            answer: dict[str, Any] = getattr(self._client(service), xform_name(operation))(**arguments)
        except ClientError as error:
            told = error.response.get("Error") or {}
            status = (error.response.get("ResponseMetadata") or {}).get("HTTPStatusCode") or 0
            raise types.meaning(head, str(told.get("Code", "")), str(told.get("Message", "")), status) from error
        except BotoCoreError as error:
            raise self._translated(head, error) from error
        except (OSError, ResponseParserError) as error:
            raise CloudAway(f"{head}: {type(error).__name__}: {one_line(str(error))}") from error
        except ValueError as error:
            # What botocore makes of an address that is none.
            if not str(error).startswith("Invalid endpoint"):
                raise
            text = f"{head}: {one_line(str(error))}; correct AWS_ENDPOINT_URL, or endpoint_url of the profile"
            raise CloudAway(text, maybe_done=False) from error
        finally:
            log.debug("Provider %s: %s %s in %.3f s", self.provider, service, operation, monotonic() - started)
        return answer

    def _translated(self, head: str, error: Exception) -> CloudRefused | CloudAway:
        kind = type(error).__name__
        text = f"{head}: {one_line(str(error)) or kind}"
        if kind in ("ParamValidationError", "MissingParametersError"):
            return CloudSetup(f"{text}; correct it in the configuration", code=kind)
        if kind.startswith("NoRegion") or "InvalidRegion" in kind:
            return CloudAway(f"{text}; correct region-name", maybe_done=False, code=kind)
        if any(word in kind for word in _NO_LOGIN):
            advice = "check the credentials: the environment, ~/.aws of the daemon's user, or the role of the machine"
            return CloudAway(f"{text}; {advice}", maybe_done=False, code=kind)
        if kind in _NOT_SENT:
            return CloudAway(f"{text}; {_REACH}", maybe_done=False, code=kind)
        return CloudAway(text, code=kind)

    def _client(self, service: str) -> Any:
        client = self._clients.get(service)
        if client is not None:
            return client
        with self._lock:
            client = self._clients.get(service)
            if client is None:
                if self.stopped.is_set():
                    raise self._stopped(f"a call of {service}")
                client = self._clients[service] = self._make_client(service)
            return client

    def _client_of_botocore(self, service: str) -> Any:
        """It sends each call once: what is repeated is decided here. Called with the lock."""
        import botocore.session
        from botocore.config import Config

        if self._session is None:
            self._session = botocore.session.Session(profile=self._profile)
            self._session.register_component("response_parser_factory", AnswerParsers())
        self._check_login()
        config = Config(
            region_name=self.region,
            connect_timeout=CONNECT_SECONDS,
            read_timeout=READ_SECONDS,
            max_pool_connections=CONNECTIONS,
            retries={"mode": "standard", "total_max_attempts": 1},
        )
        return self._session.create_client(service, region_name=self.region, config=config)

    def _check_login(self) -> None:
        """Are there credentials? A client that is made without any never gets some. Called with the lock.

        Raises NoCredentialsError: the machine may have no role yet, or its metadata service is not ready.
        """
        from botocore.exceptions import NoCredentialsError

        if monotonic() < self._without_login_until:
            raise NoCredentialsError
        if self._session.get_credentials() is None:
            self._without_login_until = monotonic() + REFUSED_SECONDS
            raise NoCredentialsError

    def _stopped(self, operation: str) -> CloudAway:
        return CloudAway(f"Provider {self.provider}: {operation} failed: the provider was stopped", maybe_done=False)


# `AnswerParsers`: lists of instances are read by `instances_in`, all else by botocore.
#
# botocore takes each XML for an answer in which all is left out, also the page of a proxy: what is not there would be
# taken for deleted.

_LIST: Final = "DescribeInstancesResult"
#: How answers of EC2 begin: ``<RunInstancesResponse``.
_ANSWER: Final = re.compile(rb"\s*(?:<\?xml[^>]*>)?\s*<\w+Response\b")
_SHOWN_BYTES: Final = 100


class AnswerParsers:
    """Component ``response_parser_factory`` of a session of botocore."""

    def __init__(self) -> None:
        from botocore.parsers import ResponseParserFactory

        factory = ResponseParserFactory()
        self.set_parser_defaults = factory.set_parser_defaults
        self._create = factory.create_parser

    def create_parser(self, protocol_name: str) -> Any:
        """See botocore."""
        parser = self._create(protocol_name)
        return _Ec2Parser(parser) if protocol_name == "ec2" else parser


class _Ec2Parser:
    """That of botocore, but for one answer, and for what is none."""

    def __init__(self, parser: Any) -> None:
        self._parser = parser

    def parse(self, response: dict[str, Any], shape: Any) -> dict[str, Any]:
        """See botocore. What is no list of instances, such as an error, is left to it."""
        from botocore.parsers import ResponseParserError

        worked = response["status_code"] < 300
        if not worked or shape is None or shape.name != _LIST:
            if worked and not _ANSWER.match(response["body"]):
                begin = response["body"][:_SHOWN_BYTES]
                raise ResponseParserError(f"the answer is not of EC2: {begin!r}")
            parsed: dict[str, Any] = self._parser.parse(response, shape)
            return parsed
        try:
            instances, token = types.instances_in(response["body"])
        except (ElementTree.ParseError, ValueError) as error:
            raise ResponseParserError(f"the list of instances cannot be read: {error}") from error
        metadata = {"HTTPStatusCode": response["status_code"], "HTTPHeaders": dict(response["headers"])}
        found: dict[str, Any] = {"Reservations": [{"Instances": instances}], "ResponseMetadata": metadata}
        return {**found, "NextToken": token} if token else found


# `Ec2`: the calls.

#: Longest pages of lists: 1000 entries, but for these.
A_PAGE: Final = {"DescribeHosts": 500, "DescribeVolumes": 500, "DescribeLaunchTemplates": 200}
OTHERS_A_PAGE: Final = 1000
QUOTAS_A_PAGE: Final = 100
TASKS_A_PAGE: Final = 100

#: An AMI is made of the snapshot.
_IN_USE: Final = "InvalidSnapshot.InUse"
_GONE: Final = "InvalidAMIID.Unavailable"
_TEMPLATE_EXISTS: Final = "InvalidLaunchTemplateName.AlreadyExistsException"


class Ec2:
    """One region. All methods block; any thread may call them. They raise what `nodepool.driver.aws.types` has."""

    def __init__(self, transport: AwsTransport) -> None:
        self.transport = transport

    # -- instances, which `launches` makes, and `instances` lists and ends --

    def console(self, instance_id: str) -> str | None:
        """What an instance wrote to its console; None = nothing so far, or it does not exist."""
        with contextlib.suppress(types.AwsNotFound):
            return self._read("GetConsoleOutput", InstanceId=instance_id).get("Output") or None
        return None

    # -- fleets and their launch templates --

    def create_fleet(self, arguments: dict[str, Any], permit: Callable[[], None]) -> str:
        """Make a fleet of one instance; returns the id of the instance."""
        return types.instance_of_fleet(self.head("CreateFleet"), self._change("CreateFleet", permit, **arguments))

    def create_template(self, name: str, data: Mapping[str, Any], tags: Mapping[str, str]) -> None:
        """Make a launch template, unless there is one of the name."""
        try:
            self._change(
                "CreateLaunchTemplate",
                ClientToken=name[-64:],
                LaunchTemplateName=name,
                LaunchTemplateData=data,
                TagSpecifications=types.tag_specifications(tags, "launch-template"),
            )
        except CloudRefused as error:
            if error.code != _TEMPLATE_EXISTS:
                raise

    def templates(self, tags: Mapping[str, str]) -> list[types.LaunchTemplate]:
        """Those that have these tags, but for those of another installation (D-10)."""
        found = self.listed("DescribeLaunchTemplates", "LaunchTemplates", **_tagged(tags))
        return [types.LaunchTemplate(data) for data in found if foreign(types.tags_of(data)) is None]

    def delete_template(self, template_id: str) -> None:
        self._change("DeleteLaunchTemplate", LaunchTemplateId=template_id)

    # -- dedicated hosts (AW-6) --

    def allocate_host(
        self, instance_type: str, zone: str | None, tags: Mapping[str, str], token: str, permit: Callable[[], None]
    ) -> str:
        """Allocate one host; returns its id.

        :param token: what AWS knows the call by when it is sent again.
        """
        answer = self._change(
            "AllocateHosts",
            permit,
            ClientToken=token,
            InstanceType=instance_type,
            AvailabilityZone=zone,
            Quantity=1,
            **dict.fromkeys(("AutoPlacement", "HostRecovery", "HostMaintenance"), "off"),
            TagSpecifications=types.tag_specifications(tags, "dedicated-host"),
        )
        if not answer.get("HostIds"):
            # What became of it, lists will show.
            raise CloudAway(f"{self.head('AllocateHosts')}: the answer has no host")
        return str(answer["HostIds"][0])

    def host(self, host_id: str) -> types.AwsHost:
        """One host, as it is now; raises AwsNotFound."""
        answer = self._read("DescribeHosts", HostIds=[host_id])
        if not answer.get("Hosts"):
            raise types.AwsNotFound(f"there is no host {host_id}", code="InvalidHostID.NotFound")
        return types.AwsHost(answer["Hosts"][0])

    def hosts(self) -> list[types.AwsHost]:
        """All that have the tag of a launcher."""
        wanted = [{"Name": "tag-key", "Values": [PROVIDER_KEY]}]
        return [types.AwsHost(data) for data in self.listed("DescribeHosts", "Hosts", Filter=wanted)]

    def release_host(self, host_id: str) -> None:
        """Give a host back. AWS reports a failure in an answer that looks like a success."""
        answer = self._change("ReleaseHosts", HostIds=[host_id])
        for failed in answer.get("Unsuccessful") or ():
            error = failed.get("Error") or {}
            head = f"{self.head('ReleaseHosts')} for {failed.get('ResourceId')}"
            raise types.meaning(head, str(error.get("Code", "")), str(error.get("Message", "")), 200)

    # -- volumes and tags --

    def volumes(self) -> list[types.AwsVolume]:
        """All of the region."""
        return [types.AwsVolume(data) for data in self.listed("DescribeVolumes", "Volumes")]

    def delete_volume(self, volume_id: str) -> None:
        self._change("DeleteVolume", VolumeId=volume_id)

    def tag_now(self, ids: Iterable[str], tags: Mapping[str, str]) -> None:
        """Set tags of things of any kind."""
        self.tag(lambda: (ids, tags))

    def tag(self, wanted: Callable[[], tuple[Iterable[str], Mapping[str, str]]]) -> None:
        """Set tags of things of any kind.

        :param wanted: asked for their ids, and the tags, when the call's turn has come.
        """

        def arguments() -> dict[str, Any]:
            ids, tags = wanted()
            return {"Resources": list(ids), "Tags": types.tag_list(tags)}

        self.transport.call("ec2", TAG, "CreateTags", arguments)

    # -- limits --

    def quotas(self, service: str) -> list[types.AccountQuota]:
        """Limits of the account.

        :param service: ``ec2`` or ``ebs``.
        """
        wanted = {"ServiceCode": service, "MaxResults": QUOTAS_A_PAGE}
        found = self.transport.pages("service-quotas", QUOTAS, "ListServiceQuotas", wanted, "Quotas")
        # One that AWS could not find out has a reason in place of its value.
        return [
            types.AccountQuota(quota["QuotaCode"], quota.get("QuotaName", ""), quota["Value"])
            for quota in found
            if "Value" in quota
        ]

    # -- what labels and pools name --

    def image(self, image_id: str) -> types.AwsImage:
        """One AMI; raises AwsNotFound."""
        answer = self._read("DescribeImages", ImageIds=[image_id])
        if not answer.get("Images"):
            raise types.AwsNotFound(f"there is no image {image_id}; correct image-id", code="InvalidAMIID.NotFound")
        return types.AwsImage(answer["Images"][0])

    def images(self, **wanted: Any) -> list[types.AwsImage]:
        """AMIs of anybody, unless filters say which."""
        return [types.AwsImage(data) for data in self.listed("DescribeImages", "Images", **wanted)]

    def instance_type(self, name: str) -> types.InstanceType:
        """One type; a CloudRefused with the code ``InvalidInstanceType`` if AWS does not know it in the region."""
        answer = self._read("DescribeInstanceTypes", InstanceTypes=[name])
        if not answer.get("InstanceTypes"):
            raise CloudRefused(f"there is no instance type {name}", code="InvalidInstanceType")
        return types.InstanceType(answer["InstanceTypes"][0])

    def subnets(self, ids: Iterable[str]) -> dict[str, types.Subnet]:
        """Subnets, by id; what does not exist is missing. Without ids those of the default VPC, which is used then."""
        wanted = where("subnet-id", *ids) if ids else where("default-for-az", "true")
        return {subnet.id: subnet for subnet in map(types.Subnet, self.listed("DescribeSubnets", "Subnets", **wanted))}

    # -- only for ``nodepool check`` --

    def zones(self) -> dict[str, str]:
        """States of the zones of the region, by name."""
        answer = self._read("DescribeAvailabilityZones")
        return {zone["ZoneName"]: zone.get("State", "") for zone in answer.get("AvailabilityZones") or ()}

    def vpc_of_group(self, group_id: str) -> str | None:
        """The VPC of a security group; None = there is no such group."""
        answer = self._read("DescribeSecurityGroups", **where("group-id", group_id))
        return next((str(group.get("VpcId", "")) for group in answer.get("SecurityGroups") or ()), None)

    def has_key_pair(self, name: str) -> bool:
        """Is there a key pair of the name?"""
        return bool(self._read("DescribeKeyPairs", **where("key-name", name)).get("KeyPairs"))

    def zones_with(self, instance_type: str) -> set[str]:
        """Zones that have instances of a type."""
        wanted = {"LocationType": "availability-zone", **where("instance-type", instance_type)}
        found = self.listed("DescribeInstanceTypeOfferings", "InstanceTypeOfferings", **wanted)
        return {str(data["Location"]) for data in found}

    # -- uploaded images: AMIs --

    def own_images(self, tags: Mapping[str, str]) -> list[types.AwsImage]:
        """Those of the account that have these tags."""
        return self.images(Owners=["self"], **_tagged(tags))

    def image_named(self, name: str) -> types.AwsImage | None:
        """The one of the account with a name; there is at most one."""
        return next(iter(self.images(Owners=["self"], **where("name", name))), None)

    def register(self, arguments: dict[str, Any]) -> str:
        """Make an AMI of snapshots; returns its id."""
        return str(self._change("RegisterImage", **arguments)["ImageId"])

    # -- uploaded images: snapshots, and their blocks --

    def snapshots(self, tags: Mapping[str, str]) -> list[types.AwsSnapshot]:
        """Those of the account that have these tags."""
        return self._snapshots(**_tagged(tags))

    def snapshot(self, snapshot_id: str) -> types.AwsSnapshot | None:
        """One; None = it is not there, or not yet."""
        return next(iter(self._snapshots(**where("snapshot-id", snapshot_id))), None)

    def _snapshots(self, **wanted: Any) -> list[types.AwsSnapshot]:
        found = self.listed("DescribeSnapshots", "Snapshots", OwnerIds=["self"], **wanted)
        return [types.AwsSnapshot(data) for data in found]

    def start_snapshot(self, arguments: dict[str, Any]) -> str:
        """Begin one that is written block by block; returns its id."""
        return str(self.transport.call("ebs", CHANGE, "StartSnapshot", arguments)["SnapshotId"])

    def put_block(self, snapshot_id: str, index: int, data: bytes, digest: bytes) -> None:
        """Write one block.

        :param digest: its SHA-256. AWS refuses data that have another one.
        """
        block = {"SnapshotId": snapshot_id, "BlockIndex": index, "BlockData": data, "DataLength": len(data)}
        arguments = {**block, **_sha256(digest)}
        self.transport.call("ebs", STORE, "PutSnapshotBlock", arguments)

    def complete_snapshot(self, snapshot_id: str, blocks: int, digest: bytes | None) -> None:
        """All blocks are written. AWS compares.

        :param blocks: how many were written.
        :param digest: SHA-256 over the SHA-256 of the blocks, in their order; None = the content does not matter.
        """
        arguments: dict[str, Any] = {"SnapshotId": snapshot_id, "ChangedBlocksCount": blocks}
        if digest is not None:
            arguments |= {**_sha256(digest), "ChecksumAggregationMethod": "LINEAR"}
        self.transport.call("ebs", CHANGE, "CompleteSnapshot", arguments)

    # -- uploaded images: imports out of S3, of a whole AMI or of a snapshot --

    def begin_import(self, arguments: dict[str, Any], *, whole: bool) -> types.ImportTask:
        return types.ImportTask(self._change(_IMPORTS[whole][0], **arguments), whole)

    def import_tasks(self, *, whole: bool) -> list[types.ImportTask]:
        """All of the region, also those that have ended some days ago."""
        return self._tasks(whole, MaxResults=TASKS_A_PAGE)

    def import_task(self, task_id: str) -> types.ImportTask:
        """One; raises AwsNotFound."""
        found = self._tasks(task_id.startswith("import-ami"), ImportTaskIds=[task_id])
        if not found:
            raise types.AwsNotFound(f"there is no import task {task_id}", code="InvalidConversionTaskId.NotFound")
        return found[0]

    def _tasks(self, whole: bool, **wanted: Any) -> list[types.ImportTask]:
        _, operation, key = _IMPORTS[whole]
        return [types.ImportTask(data, whole) for data in self.transport.pages("ec2", READ, operation, wanted, key)]

    # -- uploaded images: deletions (AW-18, AW-19). What does not exist any more is no error. --

    def discard_image(self, image_id: str) -> None:
        """Delete an AMI, and the snapshots of its volumes (AW-19)."""
        try:
            image = self.image(image_id)
        except types.AwsNotFound:
            return
        try:
            self._change("DeregisterImage", ImageId=image_id)
        except CloudRefused as error:
            if not isinstance(error, types.AwsNotFound) and error.code != _GONE:
                raise
        for _, volume in image.devices:
            if volume.get("SnapshotId"):
                self.discard_snapshot(volume["SnapshotId"])

    def discard_snapshot(self, snapshot_id: str) -> None:
        """Delete a snapshot. One that is in use by another AMI stays. One that gets its blocks from outside may have to
        be completed first.
        """
        try:
            self._change("DeleteSnapshot", SnapshotId=snapshot_id)
        except types.AwsNotFound:
            return
        except CloudRefused as error:
            if error.code == _IN_USE:
                log.info("Snapshot %s stays, because another image is made of it", snapshot_id)
                return
            snapshot = self.snapshot(snapshot_id)
            if snapshot is None or snapshot.status != types.PENDING:
                raise
            self.complete_snapshot(snapshot_id, 0, None)
            self._change("DeleteSnapshot", SnapshotId=snapshot_id)

    def discard_import(self, task_id: str) -> None:
        """End an import, and delete what it has made."""
        try:
            self._change("CancelImportTask", ImportTaskId=task_id)
        except types.AwsNotFound:
            return
        except CloudRefused as error:
            # It has ended by itself.
            log.debug("Import %s: %s", task_id, error)
        task = self.import_task(task_id)
        if task.status == types.COMPLETED:
            if task.image_id:
                self.discard_image(task.image_id)
            for snapshot_id in task.snapshot_ids:
                self.discard_snapshot(snapshot_id)

    # -- inside --

    def listed(self, operation: str, key: str, **wanted: Any) -> Iterator[dict[str, Any]]:
        """The entries of a list of EC2.

        :param key: of the list in the answers.
        :param wanted: arguments, such as `where` makes.
        """
        given = {"MaxResults": A_PAGE.get(operation, OTHERS_A_PAGE), **wanted}
        return self.transport.pages("ec2", READ, operation, given, key)

    def _read(self, operation: str, **arguments: Any) -> dict[str, Any]:
        return self.transport.call("ec2", READ, operation, arguments)

    def _change(self, operation: str, permit: Callable[[], None] = lambda: None, **arguments: Any) -> dict[str, Any]:
        return self.transport.call("ec2", CHANGE, operation, arguments, permit)

    def head(self, operation: str) -> str:
        """How the text of an error begins."""
        return f"Provider {self.transport.provider}: {operation} failed"


#: Of a whole AMI, and of a snapshot: how an import is begun, and listed.
_IMPORTS: Final = {
    True: ("ImportImage", "DescribeImportImageTasks", "ImportImageTasks"),
    False: ("ImportSnapshot", "DescribeImportSnapshotTasks", "ImportSnapshotTasks"),
}


def _sha256(digest: bytes) -> dict[str, str]:
    return {"Checksum": base64.b64encode(digest).decode(), "ChecksumAlgorithm": "SHA256"}


def where(name: str, *values: str) -> dict[str, Any]:
    """Arguments of a list: one of the values."""
    return {"Filters": [{"Name": name, "Values": list(values)}]}


def _tagged(tags: Mapping[str, str]) -> dict[str, Any]:
    """Arguments of a list: all of these tags."""
    return {"Filters": [{"Name": f"tag:{name}", "Values": [value]} for name, value in tags.items()]}
