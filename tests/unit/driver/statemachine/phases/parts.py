# SPDX-License-Identifier: Apache-2.0
"""What a phase is given in these tests."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any, cast

from nodepool.driver.statemachine import Instance, StateMachine
from nodepool.driver.statemachine.phases.phase import LaunchOrder
from nodepool.logconfig import get_annotated_logger
from nodepool.model import states
from nodepool.model.node import Node

LOG = get_annotated_logger(logging.getLogger("nodepool.tests.phases"))


class Writes:
    """ZooKeeper, as far as phases use it: notes the external ids that were stored."""

    def __init__(self, locked: bool = True, error: Exception | None = None) -> None:
        self.locked = locked
        self.error = error
        self.stored: list[Any] = []

    def surelyLocked(self, node: Node) -> bool:
        return self.locked

    def storeNode(self, node: Node) -> None:
        if self.error is not None:
            raise self.error
        self.stored.append(node.external_id)


class Clock:
    """A time that is set."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Machine(StateMachine):
    """Does what it is told: an exception is raised, an external id is set, an instance ends it; None = no news."""

    def __init__(self, *script: Any) -> None:
        super().__init__()
        self.script = list(script)

    def advance(self) -> Instance | None:
        event = self.script.pop(0)
        if isinstance(event, Exception):
            raise event
        if isinstance(event, str):
            self.external_id = event
            return None
        if event is not None:
            self.complete = True
        return cast("Instance | None", event)


class Completed(StateMachine):
    """Is complete at once, without an instance."""

    def advance(self) -> None:
        self.complete = True


def make_node() -> Node:
    node = Node("small")
    node.id = "0000000007"
    node.state = states.BUILDING
    node.provider = "cloud-a"
    return node


def make_order(node: Node, **pool: Any) -> LaunchOrder:
    return LaunchOrder(
        node=node,
        label=cast(Any, SimpleNamespace(name="small")),
        pool=cast(Any, SimpleNamespace(name="main", node_attributes=None, use_internal_ip=False, **pool)),
        settings=SimpleNamespace(name="cloud-a", launch_timeout=60.0, boot_timeout=30.0),
        request=cast(Any, SimpleNamespace(requestor="zuul")),
    )


def make_instance(address: str | None = "192.0.2.7") -> Instance:
    instance = Instance()
    instance.external_id = "server-1"
    instance.interface_ip = address
    instance.getQuotaInformation = _no_quota  # type: ignore[method-assign]
    return instance


def _no_quota() -> Any:
    raise NotImplementedError
