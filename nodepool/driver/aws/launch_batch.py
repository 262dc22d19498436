# SPDX-License-Identifier: Apache-2.0
"""Launches that wait for AWS to take calls: equal ones go in one call of RunInstances (MinCount 1, MaxCount n).

AWS takes 5 calls at once, and then 2 a second, but 1000 instances. A launch is a call of its own as long as AWS takes
all of them; after that launches that come soon after each other go together if all is equal but the node. A call that
makes fewer instances than it was to make has told that something is short: the others go again, each alone, so that AWS
says what it is.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from typing import Any, Final

from nodepool.driver.aws.batch_tag import BATCH_KEY, MOST, OWN_KEYS, batch_value, fits
from nodepool.driver.aws.batch_tags import own_tags
from nodepool.driver.aws.client import Ec2
from nodepool.driver.aws.launch_spec import with_tags
from nodepool.driver.aws.places import LaunchPlace
from nodepool.driver.aws.types import AwsRecord
from nodepool.driver.framework.cloud_errors import CloudRefused
from nodepool.driver.framework.joined_orders import JoinedOrders
from nodepool.driver.framework.rate_classes import Call
from nodepool.driver.framework.shared_call import SharedCall
from nodepool.driver.statemachine import CreationKey
from nodepool.exceptions import LaunchStatusException
from nodepool.guard import settle

log = logging.getLogger("nodepool.driver.aws.launch_batch")

#: A creation with this token was sent before, with other parameters; or an instance of it is gone.
_OTHER_PARAMETERS: Final = "IdempotentParameterMismatch"
_ENDED: Final = "IdempotentInstanceTerminated"


class InstanceOrder:
    """One instance that is wanted.

    :param arguments: of RunInstances, but for tags, token and number.
    :param tags: of the instance.
    :param permit: see `nodepool.driver.framework.joined_orders.JoinedOrder`; may have found another place better.
    :param wanted: likewise, whatever the place. What was sent to a place, maybe, must be sent there again.
    """

    def __init__(
        self,
        key: CreationKey,
        place: LaunchPlace,
        arguments: dict[str, Any],
        tags: Mapping[str, str],
        permit: Callable[[], None],
        wanted: Callable[[], None],
    ) -> None:
        self.key = key
        self.place = place
        self.arguments = arguments
        self.tags = tags
        self.permit = permit
        self.wanted = wanted
        #: Gets the id of the instance.
        self.future: Future[str] = Future()
        #: The call that it went with, and its launch index there; None = it was not sent.
        self.batch: LaunchBatch | None = None
        self.index = 0

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
        self._orders: JoinedOrders[InstanceOrder, Call] = JoinedOrders(
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
