# SPDX-License-Identifier: Apache-2.0
"""Long operations: what ``Azure-AsyncOperation`` and ``Location`` lead to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from simulators.azure.resources import LOCATION, SUBSCRIPTION
from simulators.azure.shapes import operation_path
from simulators.base.messages import ApiError, Json, new_id


@dataclass
class LongOperation:
    """One of them."""

    id: str
    resource_id: str
    started: str
    status: str = "InProgress"
    ended: str | None = None
    error: Json | None = None
    output: Json | None = None

    def shown(self) -> Json:
        """As the address of ``Azure-AsyncOperation`` shows it."""
        found: Json = {"startTime": self.started, "status": self.status, "name": self.id}
        if self.ended:
            found["endTime"] = self.ended
        if self.error is not None:
            found["error"] = self.error
        if self.output is not None:
            found["properties"] = {"output": self.output}
        return found


class LongOperations:
    """All of a subscription.

    :param stamp: the time as Azure writes it.
    """

    def __init__(self, stamp: Callable[[], str]) -> None:
        self._stamp = stamp
        self._all: dict[str, LongOperation] = {}

    def begin(self, resource_id: str) -> str:
        """Returns the id of a new one."""
        operation = LongOperation(new_id(), resource_id, self._stamp())
        self._all[operation.id] = operation
        return operation.id

    def all(self) -> list[LongOperation]:
        """In the order of their beginnings."""
        return list(self._all.values())

    def end(self, operation_id: str, error: Json | None = None, output: Json | None = None) -> None:
        """It has ended."""
        operation = self._all[operation_id]
        operation.status = "Succeeded" if error is None else "Failed"
        operation.error, operation.output, operation.ended = error, output, self._stamp()

    def get(self, operation_id: str) -> LongOperation:
        """One of them.

        :raises ApiError: 404.
        """
        found = self._all.get(operation_id)
        if found is None:
            raise ApiError(404, f"The operation {operation_id} was not found.", "NotFound")
        return found

    def path(self, operation_id: str) -> str:
        """Of ``Azure-AsyncOperation``, below the address of the service."""
        return operation_path(self._all[operation_id].resource_id, operation_id, SUBSCRIPTION, LOCATION)
