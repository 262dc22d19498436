# SPDX-License-Identifier: Apache-2.0
"""Launches that wait for AWS to take calls: equal ones go in one call of RunInstances (MinCount 1, MaxCount n).

AWS takes 5 calls at once, and then 2 a second, but 1000 instances. A launch is a call of its own as long as AWS takes
all of them; after that launches that come soon after each other go together if all is equal but the node. If a call
makes fewer instances than it was to make, something is short: the others go again, each alone, so that AWS says what it
is. After the launches come the templates of fleets, and the tags of instances that were made together.
"""

from __future__ import annotations

import hashlib
import json
import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from nodepool.clock import monotonic, wall_time
from nodepool.driver.aws import launch_calls as spec
from nodepool.driver.aws.client import Ec2
from nodepool.driver.aws.errors import AwsNotFound
from nodepool.driver.aws.facts import LaunchPlace
from nodepool.driver.aws.launch_calls import with_tags
from nodepool.driver.aws.types import BATCH_KEY, MOST, OWN_KEYS, RUNNING, AwsRecord, batch_value, fits
from nodepool.driver.framework.cloud_errors import CloudRefused
from nodepool.driver.framework.fact import Fact
from nodepool.driver.framework.orders import Batches, JoinedOrder, JoinedOrders, SharedCall
from nodepool.driver.framework.rate import Call
from nodepool.driver.statemachine import CreationKey, instance
from nodepool.driver.statemachine.instance import hostname, of_installation
from nodepool.exceptions import LaunchError, LaunchStatusException
from nodepool.guard import settle

if TYPE_CHECKING:
    from nodepool.driver.aws.config import AwsLabel, AwsProviderConfig

log = logging.getLogger("nodepool.driver.aws.launches")

#: A creation with this token was sent before, with other parameters; or an instance of it is gone.
_OTHER_PARAMETERS: Final = "IdempotentParameterMismatch"
_ENDED: Final = "IdempotentInstanceTerminated"


@dataclass(eq=False)
class InstanceOrder(JoinedOrder):
    """One instance that is wanted.

    :param arguments: of RunInstances, but for tags, token and number.
    :param tags: of the instance.
    :param permit: see `nodepool.driver.framework.orders.JoinedOrder`; may have found another place better.
    :param wanted: likewise, whatever the place. What was sent to a place, maybe, must be sent there again.
    """

    key: CreationKey
    place: LaunchPlace
    arguments: dict[str, Any]
    tags: Mapping[str, str]
    permit: Callable[[], None]
    wanted: Callable[[], None]
    #: Gets the id of the instance.
    future: Future[str] = field(default_factory=Future)
    #: The call that it went with, and its launch index there; None = it was not sent.
    batch: LaunchBatch | None = None
    index: int = 0

    @property
    def common(self) -> str:
        """Equal for orders of which all is equal but the node."""
        return json.dumps([self.place, self.arguments, self.common_tags], sort_keys=True)

    @property
    def common_tags(self) -> dict[str, str]:
        return {name: value for name, value in self.tags.items() if name not in OWN_KEYS}


#: Instances of a call, by launch index.
Made = Mapping[int, AwsRecord]


class LaunchBatch:
    """One call, for one order or several equal ones. What is sent again is the same, so AWS knows it by its token."""

    def __init__(self, client: Ec2, orders: Sequence[InstanceOrder], executor: Executor) -> None:
        self._client = client
        self.orders = tuple(orders)
        first = self.orders[0]
        self.token = token_of([order.key for order in self.orders], first.place)
        tags = dict(first.tags)
        if len(self.orders) > 1:
            tags = {**first.common_tags, BATCH_KEY: batch_value(order.key.node_id for order in self.orders)}
        self._arguments = with_tags(first.arguments, tags, self.token)
        self.call: SharedCall[Made] = SharedCall(self._run, executor)
        for index, order in enumerate(self.orders):
            order.batch, order.index = self, index

    def first(self, turn: Call) -> Made:
        """Send it; blocks."""
        return self.call.make(lambda: self._run(turn))

    def _run(self, turn: Call | None = None) -> Made:
        try:
            made = self._client.run_instances(self._arguments, len(self.orders), self._permit, turn)
        except CloudRefused as error:
            if error.code not in (_ENDED, _OTHER_PARAMETERS):
                raise
            # It was sent before: by a launcher that was killed, with another configuration, or its instances ended.
            made = [record for record in self._client.instances_of_token(self.token) if not record.gone]
            if not made:
                raise _without_instance(error) from error
            for record in made:
                log.info("Instance %s was made by the same creation with an earlier configuration", record.id)
        by_index = {record.launch_index: record for record in made}
        return by_index if len(by_index) == len(made) else self._numbered_here(made)

    def _numbered_here(self, made: Sequence[AwsRecord]) -> Made:
        """AWS gave several the same launch index: whose they are, only tags of their own can say. Blocks for them."""
        log.warning("Instances of one call have the same launch index; they get their tags now")
        by_index = dict(enumerate(sorted(made, key=lambda record: record.id)))
        for index, record in by_index.items():
            tags = own_tags(self.orders[index].key.node_id)
            self._client.tag(lambda record=record, tags=tags: ([record.id], tags))  # type: ignore[misc]
        return by_index

    def _permit(self) -> None:
        """Is one of them still wanted? Then the call is made as it was."""
        asked: list[Future[None]] = []
        for order in self.orders:
            asked.append(Future())
            settle(asked[-1:], order.wanted)
            if asked[-1].exception() is None:
                return
        asked[-1].result()


def _without_instance(error: CloudRefused) -> Exception:
    if error.code == _ENDED:
        return LaunchStatusException(f"the instance was ended before its creation was told: {error}")
    return error


class LaunchBatches:
    """The calls of one provider. Thread-safe, does not block.

    :param executor: makes the calls.
    :param joined: told of instances that a call made for several orders, in its thread.
    """

    def __init__(self, client: Ec2, executor: Executor, joined: Callable[[Sequence[AwsRecord]], None]) -> None:
        self._client = client
        self._executor = executor
        self._joined = joined
        self._orders: JoinedOrders[InstanceOrder] = JoinedOrders(
            client.wait_to_run, self._send, executor, MOST, client.transport.sleep
        )

    def add(self, order: InstanceOrder) -> Future[str]:
        """Have an instance made; the future gets its id. Ends with `CloudAway` if there was no answer: see `again`."""
        self._orders.add(order, order.common)
        return order.future

    def again(self, order: InstanceOrder) -> Future[str]:
        """Send again what got no answer. It is the same call: AWS answers with the same instances."""
        order.future = Future()
        if order.batch is None:
            # It failed before its turn came.
            return self.add(order)
        order.batch.call.again().add_done_callback(lambda made: self._answered(order, made))
        return order.future

    def _answered(self, order: InstanceOrder, made: Future[Made]) -> None:
        error = made.exception()
        if error is not None:
            order.future.set_exception(error)
        elif order.index in made.result():
            order.future.set_result(made.result()[order.index].id)
        else:
            # The call made fewer instances.
            self._orders.add_alone(order)

    def _send(self, orders: Sequence[InstanceOrder], turn: Call) -> dict[InstanceOrder, str]:
        while not fits(order.key.node_id for order in orders):
            orders = orders[:-1]
        batch = LaunchBatch(self._client, orders, self._executor)
        made = batch.first(turn)
        if len(orders) > 1:
            self._joined(list(made.values()))
        return {order: made[order.index].id for order in orders if order.index in made}


def token_of(keys: Sequence[CreationKey], place: LaunchPlace) -> str:
    """What AWS knows a call by. Each place has one of its own: with other parameters AWS refuses the same.

    At most 64 characters: 35 of the key, or of all keys, and a few for the place.
    """
    text = keys[0].text
    if len(keys) > 1:
        text = f"np-{hashlib.sha256(' '.join(key.text for key in keys).encode()).hexdigest()[:32]}"
    return f"{text}-{hashlib.sha256(repr(place).encode()).hexdigest()[:16]}"


# `LaunchTemplates`: the launch templates of fleets: made when they are needed, else removed (AW-9).

launch_templates_log = logging.getLogger("nodepool.driver.aws.LaunchTemplates")

#: A younger template may be that of a launcher which has another configuration already.
SPARED: Final = timedelta(hours=1)
#: Templates are looked through so often, in seconds.
LOOK_SECONDS: Final = 3600.0


class LaunchTemplates:
    """Of one provider. Thread-safe; all methods block. ``_lock`` guards the table; it is not held during a call."""

    def __init__(self, config: AwsProviderConfig, client: Ec2) -> None:
        self._config = config
        self._client = client
        self._tags = spec.template_tags(config.name)
        self._lock = threading.Lock()
        self._made: dict[str, Fact[None]] = {}

    def name_for(self, label: AwsLabel) -> str:
        """The name of a label's template, which is there then."""
        data = spec.template_data(label)
        name = spec.template_name(data, self._tags)
        with self._lock:
            made = self._made.get(name)
            if made is None:
                made = self._made[name] = Fact(lambda: self._client.create_template(name, data, self._all_tags()))
        made.get(float("inf"))
        return name

    def _all_tags(self) -> dict[str, str]:
        """The name does not have the installation: who makes the same template for another one finds it there."""
        return {**self._tags, **of_installation()}

    def forget(self) -> None:
        """One was not there: make them again."""
        with self._lock:
            self._made.clear()

    def remove_unused(self) -> None:
        """Delete those that no label needs."""
        needed = {
            spec.template_name(spec.template_data(label), self._tags)
            for pool in self._config.pools.values()
            for label in pool.labels.values()
            if label.fleet_types
        }
        old = datetime.fromtimestamp(wall_time(), UTC) - SPARED
        for template in self._client.templates(self._tags):
            if template.name in needed or not template.name.startswith(spec.TEMPLATE_PREFIX):
                continue
            if template.created is None or template.created > old:
                continue
            launch_templates_log.info(
                "Provider %s: deleting launch template %s: no label uses it", self._config.name, template.name
            )
            try:
                self._client.delete_template(template.id)
            except AwsNotFound as error:
                launch_templates_log.debug("It is gone already: %s", error)


# `BatchTags`: gives instances that one call made for several nodes the tags of their own, off the way of launches.
#
# Lists say which of them lack some: so it does not matter which launcher made them, and whether it is still there. Only
# what runs is worth a call.

batch_tags_log = logging.getLogger("nodepool.driver.aws.BatchTags")

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
        self._wanted: dict[str, AwsRecord] = {}
        # The tags of each instance are others: one a call. Its volumes have the same.
        self._calls: Batches[str] = Batches(self._send, executor, 1)

    def made(self, records: Iterable[AwsRecord]) -> None:
        """This launcher made these."""
        with self._lock:
            due = monotonic() + OWN_SECONDS
            self._due.update({record.id: due for record in records})

    def seen(self, records: Sequence[AwsRecord]) -> None:
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

    def _is_due(self, record: AwsRecord, now: float) -> bool:
        """Called with the lock. It is due again only after a while."""
        due = self._due.setdefault(record.id, now + OTHERS_SECONDS)
        if record.status != RUNNING or now < due:
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
                raise AwsNotFound(f"no list shows instance {record_id} any more", code="InvalidInstanceID.NotFound")
            return [record.id, *record.volume_ids], own_tags(node_id)

        try:
            self._client.tag(wanted)
        except AwsNotFound as error:
            batch_tags_log.debug("It is gone already: %s", error)
        except LaunchError as error:
            batch_tags_log.warning("Tags are set later: %s", error)
        return {}


def own_tags(node_id: str) -> dict[str, str]:
    """Tags that an instance has alone, see `nodepool.driver.aws.types`."""
    return {instance.NODE_KEY: node_id, "Name": hostname(node_id)}
