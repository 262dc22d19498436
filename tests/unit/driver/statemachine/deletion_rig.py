# SPDX-License-Identifier: Apache-2.0
"""A deletion on a cloud without threads, step by step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nodepool.driver.statemachine.deletion_machine import DeletionMachine
from nodepool.exceptions import CloudUnavailableException, LaunchError
from tests.unit.driver.statemachine.instances import LOG, Seen, StubInstances, seen

AWAY = CloudUnavailableException("503")


class Deletion(DeletionMachine[Seen]):
    """Of an instance with something before and after it, if the test has answers for that."""

    cloud: StubInstances

    def before(self, record: Seen | None) -> Callable[[], Any] | None:
        return (lambda: self.cloud.ask("before")) if "before" in self.cloud.answers else None

    def after(self) -> Callable[[], Any] | None:
        return (lambda: self.cloud.ask("after")) if "after" in self.cloud.answers else None

    def begun(self, record: Seen) -> bool:
        return record.status == "deleting"

    def busy(self, error: LaunchError) -> bool:
        return str(error) == "busy"


def deletion_of(cloud: StubInstances, record_id: str | None = "a") -> Deletion:
    return Deletion(cloud, record_id, LOG, cloud.clock)


def show_others(cloud: StubInstances, deletion: Deletion, times: int) -> None:
    """Lists, complete ones and changes, that do not show the instance."""
    for _ in range(times):
        for complete in (True, False):
            deletion.advance()
            cloud.show(seen("other"), complete=complete)
    deletion.advance()
