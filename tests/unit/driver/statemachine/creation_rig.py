# SPDX-License-Identifier: Apache-2.0
"""A creation machine at a cloud that answers as a test says."""

from __future__ import annotations

from typing import Any

from nodepool.driver.statemachine import Instance, metadata
from nodepool.driver.statemachine.creation_machine import CreationMachine
from nodepool.driver.statemachine.lost_creations import CreationKey
from nodepool.exceptions import (
    CloudUnavailableException,
    LaunchStatusException,
    QuotaException,
)
from tests.unit.driver.statemachine.instances import LOG, NODE, PROVIDER, Seen, StubInstances


def away(text: str = "timed out", *, maybe_done: bool = True) -> CloudUnavailableException:
    error = CloudUnavailableException(text)
    error.maybe_done = maybe_done
    return error


class Launch(CreationMachine[Seen]):
    """Of the node."""

    cloud: StubInstances

    def __init__(self, cloud: StubInstances) -> None:
        super().__init__(cloud, "small", metadata.for_node(NODE, "main", PROVIDER), LOG, cloud.clock)
        self.keys: list[CreationKey] = []

    def create(self, key: CreationKey) -> str:
        self.permit()
        self.keys.append(key)
        return str(self.cloud.ask("create"))

    def seen(self, record: Seen) -> Instance | bool:
        if record.status == "broken":
            raise LaunchStatusException("it is broken")
        if record.status != "running":
            return False
        instance = Instance()
        instance.external_id = record.id
        return instance

    def refused(self, error: Exception) -> Exception:
        return QuotaException("full") if str(error) == "no room" else error


class KeyedLaunch(Launch):
    """In a cloud that knows keys."""

    idempotent = True


def advance(launch: Launch, seconds: float = 0) -> Any:
    launch.cloud.clock.now += seconds
    return launch.advance()


def list_and_advance(launch: Launch, times: int, seconds: float = 0) -> None:
    """The instance is in no list, for a while."""
    for _ in range(times):
        launch.cloud.clock.now += seconds
        launch.cloud.show()
        launch.advance()


def cloud_that_creates() -> StubInstances:
    """Each creation makes the instance ``a``."""
    cloud = StubInstances()
    cloud.answers["create"] = "a"
    return cloud
