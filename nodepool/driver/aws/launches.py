# SPDX-License-Identifier: Apache-2.0
"""Launches: what they send to AWS, and launches that go in one call.

First what an instance is to be like, the arguments of RunInstances (AW-3, AW-4), then the same for a fleet of one
instance (AW-8, AW-9). Then equal orders that have to wait: they go in one call of RunInstances (AW-15, CM-1). Then the
launch templates of fleets, and the tags that instances of such a call get later.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from nodepool.clock import monotonic, wall_time
from nodepool.driver.aws import types
from nodepool.driver.aws.client import RUN, Ec2, where
from nodepool.driver.aws.config import AwsLabel, AwsProviderConfig
from nodepool.driver.config import dynamic_values
from nodepool.driver.framework.cloud_errors import CloudAway, CloudRefused
from nodepool.driver.framework.fact import Fact
from nodepool.driver.framework.rate import Call, HeldTime, held_work, working_for
from nodepool.driver.statemachine import CreationKey, instance
from nodepool.driver.statemachine.adapter import Log
from nodepool.driver.statemachine.instance import PROVIDER_KEY, hostname, of_installation
from nodepool.driver.statemachine.inventory import Batches, end_with
from nodepool.exceptions import LaunchError, LaunchStatusException
from nodepool.guard import settle
from nodepool.model.request import NodeRequest

#: What is made with an instance, and says whose it is from its first moment on.
TAGGED: Final = ("instance", "volume")


def instance_tags(
    hostname: str, label: AwsLabel, metadata: Mapping[str, str], request: NodeRequest | None, log: Log
) -> dict[str, str]:
    """Tags: the label's, the dynamic ones, what says whose it is, and the name; the later one wins (CM-2)."""
    return {**label.tags, **dynamic_values(label, "dynamic-tags", request, log), **metadata, "Name": hostname}


def with_tags(arguments: Mapping[str, Any], tags: Mapping[str, str], token: str) -> dict[str, Any]:
    """Arguments with the tags of what is made.

    :param token: what AWS knows the creation by when it is sent again.
    """
    return {**arguments, "ClientToken": token, "TagSpecifications": types.tag_specifications(tags, *TAGGED)}


def run_arguments(
    label: AwsLabel, place: types.LaunchPlace, image: types.AwsImage, host_id: str | None = None
) -> dict[str, Any]:
    """All but the number of instances, their tags, and the token.

    :param host_id: of the dedicated host that it is to run on (AW-5).
    """
    pool = label.pool
    interface = {
        "DeviceIndex": 0,
        "AssociatePublicIpAddress": pool.public_ipv4,
        "SubnetId": place.subnet_id,
        "Groups": [pool.security_group_id] if pool.security_group_id else None,
        "Ipv6AddressCount": 1 if pool.public_ipv6 else None,
    }
    on_host = {} if host_id is None else {"Tenancy": "host", "HostId": host_id, "Affinity": "host"}
    spot = {"SpotInstanceType": "one-time", "InstanceInterruptionBehavior": "terminate"}
    return types.filled(
        {
            "ImageId": image.id,
            "InstanceType": place.instance_type,
            "KeyName": label.key_name,
            "EbsOptimized": label.ebs_optimized,
            "NetworkInterfaces": [types.filled(interface)],
            "BlockDeviceMappings": block_devices(label, image),
            # botocore encodes it.
            "UserData": label.userdata,
            "IamInstanceProfile": types.filled(
                {"Name": label.profile_name, "Arn": None if label.profile_name else label.profile_arn}
            ),
            "Placement": types.filled({"AvailabilityZone": place.zone, **on_host}),
            "MetadataOptions": metadata_options(label),
            "InstanceMarketOptions": {"MarketType": "spot", "SpotOptions": spot} if place.spot else None,
        }
    )


def run_instances(
    client: Ec2, arguments: dict[str, Any], count: int, permit: Callable[[], None], turn: Call | None = None
) -> list[types.AwsRecord]:
    """Make instances, at least one; returns them as they are then. Blocks.

    :param arguments: of `run_arguments`, with tags and token.
    :param count: so many at most.
    """
    given = {**arguments, "MinCount": 1, "MaxCount": count}
    answer = client.transport.call("ec2", RUN, "RunInstances", given, permit, turn)
    if not answer.get("Instances"):
        # What became of them, lists will show.
        raise CloudAway(f"{client.head('RunInstances')}: the answer has no instances")
    return [types.AwsRecord(data) for data in answer["Instances"]]


def block_devices(label: AwsLabel, image: types.AwsImage) -> list[dict[str, Any]]:
    """The volumes of the image, all of which go with the instance; the root as the label wants it.

    Released Nodepool says nothing of other volumes than the root: those would stay.
    """
    devices = []
    for position, (name, ebs) in enumerate(image.devices):
        # Whether it is encrypted says the snapshot: AWS refuses both.
        kept = {key: value for key, value in ebs.items() if key != "Encrypted"}
        wanted = root_values(label) if position == 0 else {}
        devices.append({"DeviceName": name, "Ebs": {**kept, "DeleteOnTermination": True, **wanted}})
    return devices


def metadata_options(label: AwsLabel) -> dict[str, str]:
    return {"HttpTokens": label.imdsv2, "HttpEndpoint": "enabled"} if label.imdsv2 else {}


def root_values(label: AwsLabel) -> dict[str, Any]:
    """What a label says of the root volume."""
    return types.filled(
        {
            "VolumeSize": label.volume_size,
            "VolumeType": label.volume_type,
            "Iops": label.iops,
            "Throughput": label.throughput,
        }
    )


# What a fleet of one instance is to be like: launch template and arguments of CreateFleet (AW-8, AW-9).

TEMPLATE_PREFIX: Final = "nodepool-launch-template-"
MANAGED_KEY: Final = "nodepool_managed"
#: As of Nodepool 11: ``str(True)``.
MANAGED: Final = "True"
PRIORITIZED: Final = "prioritized"
LOWEST_PRICE: Final = "lowest-price"


def template_data(label: AwsLabel) -> dict[str, Any]:
    """What CreateFleet cannot get otherwise."""
    group, volume = label.pool.security_group_id, root_values(label)
    root = {"DeviceName": types.ROOT_DEVICE, "Ebs": {"DeleteOnTermination": True, **volume}}
    return types.filled(
        {
            "KeyName": label.key_name,
            "SecurityGroupIds": [group] if group else None,
            "BlockDeviceMappings": [root] if volume else None,
            "MetadataOptions": metadata_options(label),
            "UserData": base64.b64encode(label.userdata.encode()).decode() if label.userdata else None,
        }
    )


def template_name(data: Mapping[str, Any], tags: Mapping[str, str]) -> str:
    """The same for the same template, and never that of another provider."""
    text = json.dumps({"data": data, "tags": tags}, sort_keys=True)
    return TEMPLATE_PREFIX + hashlib.sha256(text.encode()).hexdigest()


def fleet_arguments(
    label: AwsLabel, image_id: str, template: str, tags: Mapping[str, str], token: str, *, spot: bool
) -> dict[str, Any]:
    """Arguments of CreateFleet for one instance, at once.

    :param template: name of the launch template.
    """
    assert label.fleet_types is not None
    first = label.fleet_strategy == PRIORITIZED
    places: list[dict[str, Any]] = [{"SubnetId": subnet} for subnet in label.pool.subnet_ids] or [{}]
    overrides = [{"InstanceType": name, "ImageId": image_id, **place} for name in label.fleet_types for place in places]
    if first:
        overrides = [{**override, "Priority": float(number)} for number, override in enumerate(overrides)]
    # EC2 does not know every strategy for both kinds: the nearest is taken then.
    if spot:
        kind, options = "spot", "SpotOptions"
        strategy = "capacity-optimized-prioritized" if first else label.fleet_strategy
    else:
        kind, options, strategy = "on-demand", "OnDemandOptions", PRIORITIZED if first else LOWEST_PRICE
    specification = {"LaunchTemplateName": template, "Version": "$Latest"}
    return {
        "ClientToken": token,
        "Type": "instant",
        "TargetCapacitySpecification": {"TotalTargetCapacity": 1, "DefaultTargetCapacityType": kind},
        "LaunchTemplateConfigs": [{"LaunchTemplateSpecification": specification, "Overrides": overrides}],
        options: {"AllocationStrategy": strategy},
        "TagSpecifications": types.tag_specifications(tags, *TAGGED),
    }


# Launches that go in one call of RunInstances.

log = logging.getLogger("nodepool.driver.aws.launches")

#: Most instances of a call.
MOST: Final = 20
#: So long a call waits for more orders when AWS takes no other call now; less while it takes some, in seconds.
GATHER_SECONDS: Final = 0.25
#: A creation with this token was sent before, with other parameters; or an instance of it is deleted.
_OTHER_PARAMETERS: Final = "IdempotentParameterMismatch"
_ENDED: Final = "IdempotentInstanceTerminated"


@dataclass(eq=False)
class InstanceOrder:
    """One instance that is wanted.

    :param arguments: of RunInstances, but for tags, token and number.
    :param tags: of the instance.
    :param permit: is it still wanted, and there? Asked right before the call. Raises an error if not.
    :param wanted: likewise, whatever the place. What was sent to a place, maybe, must be sent there again.
    """

    key: CreationKey
    place: types.LaunchPlace
    arguments: dict[str, Any]
    tags: Mapping[str, str]
    permit: Callable[[], None]
    wanted: Callable[[], None]
    #: Gets the id of the instance.
    future: Future[str] = field(init=False)
    #: The call that it went with, and its launch index there; None = it was not sent.
    batch: LaunchBatch | None = None
    index: int = 0
    #: It goes in a call of its own.
    alone: bool = False
    #: What it is for waits until it is sent.
    work: tuple[HeldTime, ...] = ()

    @property
    def common(self) -> str:
        """Equal for orders of which all is equal but the node."""
        return json.dumps([self.place, self.arguments, self.common_tags], sort_keys=True)

    @property
    def common_tags(self) -> dict[str, str]:
        return {name: value for name, value in self.tags.items() if name not in types.OWN_KEYS}


#: Instances of a call, by launch index.
Made = Mapping[int, types.AwsRecord]


class LaunchBatch:
    """One call, for one order or several equal ones. What is sent again is the same, so AWS knows it by its token.

    It is sent again only if it failed. Thread-safe: ``_lock`` guards the latest future; it is not held during the call.
    """

    def __init__(self, client: Ec2, orders: Sequence[InstanceOrder], executor: Executor) -> None:
        self._client = client
        self._executor = executor
        self._lock = threading.Lock()
        self._answer: Future[Made] = Future()
        self.orders = tuple(orders)
        first = self.orders[0]
        self.token = token_of([order.key for order in self.orders], first.place)
        tags = dict(first.tags)
        if len(self.orders) > 1:
            tags = {**first.common_tags, types.BATCH_KEY: types.batch_value(order.key.node_id for order in self.orders)}
        self._arguments = with_tags(first.arguments, tags, self.token)
        for index, order in enumerate(self.orders):
            order.batch, order.index = self, index

    def first(self, turn: Call) -> Made:
        """Send it; blocks."""
        settle((self._answer,), lambda: self._run(turn))
        return self._answer.result()

    def again(self) -> Future[Made]:
        """Its answer: of the call that is under way or was answered, else of a new one. Does not block.

        After the end of the executor there is no other call: what the first one did is not known then.
        """
        with self._lock:
            answer = self._answer
            if not answer.done() or answer.exception() is None:
                return answer
            self._answer = answer = Future()
        try:
            run = self._executor.submit(settle, (answer,), self._run)
        except RuntimeError:
            # The executor was shut down.
            answer.set_exception(CloudAway("the provider was stopped"))
        else:
            run.add_done_callback(
                lambda run: answer.set_exception(CloudAway("the provider was stopped")) if run.cancelled() else None
            )
        return answer

    def _run(self, turn: Call | None = None) -> Made:
        try:
            made = run_instances(self._client, self._arguments, len(self.orders), self._permit, turn)
        except CloudRefused as error:
            if error.code not in (_ENDED, _OTHER_PARAMETERS):
                raise
            # It was sent before: by a launcher that was killed, with another configuration, or its instances ended.
            by_token = where("client-token", self.token)
            found = types.records_of(self._client.listed("DescribeInstances", "Reservations", **by_token))
            made = [record for record in found if not record.gone]
            if not made:
                if error.code == _ENDED:
                    text = f"the instance was ended before its creation was answered: {error}"
                    raise LaunchStatusException(text) from error
                raise
            for record in made:
                log.info("Instance %s was made by the same creation with an earlier configuration", record.id)
        return {record.launch_index: record for record in made}

    def _permit(self) -> None:
        """Is one of them still wanted? Then the call is made as it was."""
        for order in self.orders[:-1]:
            with contextlib.suppress(LaunchError):
                order.wanted()
                return
        self.orders[-1].wanted()


class LaunchBatches:
    """The calls of one provider. Thread-safe, does not block.

    An order is a call of its own as long as AWS takes as many calls at once as ever. The fewer it still takes, the
    longer a call waits for more orders; those that gather, also while it waits for its turn, go together, if they are
    equal. What a call did not carry out goes again, each order alone.

    :param executor: makes the calls; as many are under way at once as it has threads.
    :param joined: gets the instances that a call made for several orders, in its thread.
    """

    def __init__(self, client: Ec2, executor: Executor, joined: Callable[[Sequence[types.AwsRecord]], None]) -> None:
        self._client = client
        self._executor = executor
        self._joined = joined
        self._calls: Batches[InstanceOrder] = Batches(
            self._send,
            executor,
            MOST,
            common=lambda order: order if order.alone else order.common,
            permit=lambda order: order.permit(),
            at_once=True,
        )

    def add(self, order: InstanceOrder) -> Future[str]:
        """Have an instance made; the future gets its id. Ends with `CloudAway` if there was no answer: see `again`."""
        order.work = held_work()
        order.future = self._calls.add(order)
        return order.future

    def again(self, order: InstanceOrder) -> Future[str]:
        """Send again what got no answer. It is the same call: AWS answers with the same instances."""
        if order.batch is None:
            # It failed before its turn came.
            return self.add(order)
        told: Future[str] = Future()
        order.future = told
        order.batch.again().add_done_callback(lambda made: end_with(told, self._outcome(order, made)))
        return told

    def _send(self, take: Callable[..., list[InstanceOrder]]) -> dict[InstanceOrder, Any]:
        """One call. It waits for a turn, and then for more orders, unless there are enough, or calls are not short."""
        transport, made = self._client.transport, Future[Made]()
        turn = transport.wait_turn(RUN, "RunInstances")
        if turn.spare < 1 and 0 < self._calls.next_call() < MOST:
            transport.sleep(GATHER_SECONDS * (1 - turn.spare))
        if orders := take(MOST if turn.spare < 1 else 1):
            settle((made,), lambda: self._run(orders, turn))
        return {order: self._outcome(order, made) for order in orders}

    def _run(self, orders: list[InstanceOrder], turn: Call) -> Made:
        sent = orders[:]
        while not types.fits(order.key.node_id for order in sent):
            sent.pop()
        made = LaunchBatch(self._client, sent, self._executor).first(turn)
        if len(sent) > 1:
            self._joined(list(made.values()))
        return made

    def _outcome(self, order: InstanceOrder, made: Future[Made]) -> str | BaseException | Future[str]:
        """See `Batches`."""
        if (error := made.exception()) is not None:
            return error
        if order.batch is not None and order.index in made.result():
            return made.result()[order.index].id
        if order.batch is not None and len(order.batch.orders) == 1:
            return RuntimeError("the only order of a call was not carried out")
        # The call made fewer instances. It goes together with nothing else.
        order.alone = True
        with working_for(order.work):
            return self._calls.add(order)


def token_of(keys: Sequence[CreationKey], place: types.LaunchPlace) -> str:
    """What AWS knows a call by. Each place has one of its own: with other parameters AWS refuses the same.

    At most 64 characters: 35 of the key, or of all keys, and a few for the place.
    """
    text = keys[0].text
    if len(keys) > 1:
        text = f"np-{hashlib.sha256(' '.join(key.text for key in keys).encode()).hexdigest()[:32]}"
    return f"{text}-{hashlib.sha256(repr(place).encode()).hexdigest()[:16]}"


# `LaunchTemplates`: the launch templates of fleets: made when they are needed, else removed (AW-9).

#: A younger template may be that of a launcher which has another configuration already.
SPARED: Final = timedelta(hours=1)
#: Templates are looked through so often, in seconds.
LOOK_SECONDS: Final = 3600.0


class LaunchTemplates:
    """Of one provider. Thread-safe: what changes the table is one operation. All methods block."""

    def __init__(self, config: AwsProviderConfig, client: Ec2) -> None:
        self._config = config
        self._client = client
        self._tags = {MANAGED_KEY: MANAGED, PROVIDER_KEY: config.name}
        self._made: dict[str, Fact[None]] = {}

    def name_for(self, label: AwsLabel) -> str:
        """The name of a label's template, which is there then."""
        data = template_data(label)
        name = template_name(data, self._tags)
        # The name does not have the installation: who makes the same template for another one finds it there.
        tags = {**self._tags, **of_installation()}
        self._made.setdefault(name, Fact(lambda: self._client.create_template(name, data, tags))).get(float("inf"))
        return name

    def forget(self) -> None:
        """One was not there: make them again."""
        self._made = {}

    def remove_unused(self) -> None:
        """Delete those that no label needs."""
        needed = {
            template_name(template_data(label), self._tags)
            for pool in self._config.pools.values()
            for label in pool.labels.values()
            if label.fleet_types
        }
        old = datetime.fromtimestamp(wall_time(), UTC) - SPARED
        for template in self._client.templates(self._tags):
            if template.name in needed or not template.name.startswith(TEMPLATE_PREFIX):
                continue
            if template.created is None or template.created > old:
                continue
            log.info("Provider %s: deleting launch template %s: no label uses it", self._config.name, template.name)
            try:
                self._client.delete_template(template.id)
            except types.AwsNotFound as error:
                log.debug("It does not exist any more: %s", error)


# `BatchTags`: gives instances that one call made for several nodes the tags of their own, off the way of launches.
#
# Lists say which of them lack some: so it does not matter which launcher made them, and whether it is still there. Only
# what runs is worth a call.

#: So long after its creation an instance gets its tags: what is used for seconds only needs none, and the calls of a
#: burst are made when it is over.
OWN_SECONDS: Final = 10.0
#: For so long the launcher that made an instance is the one that sets its tags.
OTHERS_SECONDS: Final = 60.0
#: Tags may be missing in lists for some seconds after they were set.
AGAIN_SECONDS: Final = 60.0


class BatchTags:
    """Of one provider. Thread-safe, does not block; ``_lock`` guards the tables.

    :param provider: its name.
    :param executor: makes the calls, one after the other.
    """

    def __init__(self, provider: str, client: Ec2, executor: Executor) -> None:
        self._provider = provider
        self._client = client
        self._lock = threading.Lock()
        #: When it is the turn of an instance that lacks tags.
        self._due: dict[str, float] = {}
        self._wanted: dict[str, types.AwsRecord] = {}
        # The tags of each instance are others: one a call. Its volumes have the same.
        self._calls: Batches[str] = Batches(self._send, executor, 1)

    def made(self, records: Iterable[types.AwsRecord]) -> None:
        """This launcher made these."""
        with self._lock:
            due = monotonic() + OWN_SECONDS
            self._due.update({record.id: due for record in records})

    def seen(self, records: Sequence[types.AwsRecord]) -> None:
        """A list shows these, and no others."""
        lacking = [
            record for record in records if record.batched and instance.node_id_of(record.metadata, self._provider)
        ]
        with self._lock:
            now = monotonic()
            listed = {record.id for record in lacking}
            self._due = {key: due for key, due in self._due.items() if key in listed or due > now - AGAIN_SECONDS}
            found = [record for record in lacking if self._is_due(record, now)]
            # Of a call that failed before its turn came something may be left.
            self._wanted = {key: record for key, record in self._wanted.items() if key in self._due}
            self._wanted.update({record.id: record for record in found})
        for record in found:
            self._calls.add(record.id)

    def _is_due(self, record: types.AwsRecord, now: float) -> bool:
        """Called with the lock. It is due again only after a while."""
        due = self._due.setdefault(record.id, now + OTHERS_SECONDS)
        if record.status != types.RUNNING or now < due:
            return False
        self._due[record.id] = now + AGAIN_SECONDS
        return True

    def _send(self, take: Callable[[], list[str]]) -> Mapping[str, Exception]:
        """One call; blocks. What fails is tried again when a later list shows that the tags are missing."""

        def wanted() -> tuple[list[str], dict[str, str]]:
            (record_id,) = take()
            with self._lock:
                record = self._wanted.pop(record_id, None)
            node_id = None if record is None else instance.node_id_of(record.metadata, self._provider)
            if record is None or node_id is None:
                raise types.AwsNotFound(
                    f"no list shows instance {record_id} any more", code="InvalidInstanceID.NotFound"
                )
            return [record.id, *record.volume_ids], {instance.NODE_KEY: node_id, "Name": hostname(node_id)}

        try:
            self._client.tag(wanted)
        except types.AwsNotFound as error:
            log.debug("It does not exist any more: %s", error)
        except LaunchError as error:
            log.warning("Tags are set later: %s", error)
        return {}
