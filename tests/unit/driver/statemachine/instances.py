# SPDX-License-Identifier: Apache-2.0
"""A cloud without threads, whose instances and answers the test writes."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from nodepool.driver.statemachine import metadata
from nodepool.driver.statemachine.instance_cloud import InstanceCloud
from nodepool.driver.statemachine.inventory import no_changes
from nodepool.exceptions import NotFound
from tests.support.manual_clock import ManualClock
from tests.support.manual_executor import ManualExecutor
from tests.support.quiet_inventory import QuietInventory

PROVIDER = "somewhere"
NODE = "0000000042"
LOG = logging.LoggerAdapter(logging.getLogger("test"), {})


class Seen(NamedTuple):
    """An instance as the lists of this cloud show it; ``updated`` counts seconds."""

    id: str
    status: str = "running"
    updated: str = "0"
    metadata: Mapping[str, str] = {}

    @property
    def gone(self) -> bool:
        return self.status == "gone"


def seen(record_id: str, status: str = "running", *, node_id: str = NODE, provider: str = PROVIDER) -> Seen:
    """An instance of the node."""
    return Seen(record_id, status, metadata=metadata.for_node(node_id, "main", provider))


class ListedCloud:
    """A cloud for an inventory alone: what is listed, and what was asked.

    :ivar asked: since when; None = for all. :ivar error: of each list.
    """

    def __init__(self) -> None:
        self.records: list[Seen] = []
        self.asked: list[str | None] = []
        self.error: BaseException | None = None

    def fetch(self, since: str | None) -> Iterable[Seen]:
        self.asked.append(since)
        if self.error is not None:
            raise self.error
        return list(self.records)

    @staticmethod
    def since(latest: str) -> str | None:
        return str(int(latest) - 5) if latest.isdigit() else None


class StubInstances(InstanceCloud[Seen]):
    """``answers`` has what calls do, by name: a value is returned, an error raised, a function
    called, of a list one after the other.

    :param lists_changes: does it know lists of changes?
    """

    def __init__(self, *, lists_changes: bool = True) -> None:
        self.clock = ManualClock()
        super().__init__(PROVIDER, self.clock)
        since = self.changes_since if lists_changes else no_changes
        self.inventory = QuietInventory(PROVIDER, self.list_instances, since, clock=self.clock)
        self.inventory.on_news = self.delete_strays
        self.inventory.on_list = self._listed
        self.creators: ThreadPoolExecutor = ManualExecutor()  # type: ignore[assignment]
        self.others: ThreadPoolExecutor = ManualExecutor()  # type: ignore[assignment]
        self.answers: dict[str, Any] = {"list": [], "delete": None, "get": NotFound("it is gone")}
        self.calls: list[str] = []

    def ask(self, name: str) -> Any:
        """What a call does."""
        self.calls.append(name)
        answer = self.answers[name]
        if name != "list" and isinstance(answer, list):
            answer = answer.pop(0) if len(answer) > 1 else answer[0]
        if callable(answer):
            answer = answer()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def list_instances(self, since: str | None) -> Iterable[Seen]:
        found: list[Seen] = self.ask("list")
        return found

    def changes_since(self, latest: str) -> str | None:
        return latest

    def delete_instance(self, record_id: str) -> None:
        self.ask("delete")

    def get_instance(self, record_id: str) -> Seen:
        found: Seen = self.ask("get")
        return found

    def show(self, *records: Seen, complete: bool = True) -> None:
        """The cloud has these instances, and they are listed a second later."""
        self.answers["list"] = list(records)
        self.clock.now += 1
        self.inventory.refresh(complete)

    def count(self, name: str) -> int:
        return self.calls.count(name)
