# SPDX-License-Identifier: Apache-2.0
"""Operations: what a call has begun, whether it has ended, and how."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from simulators.base.messages import ApiError, Json
from simulators.gce.errors import TITLES, not_found
from simulators.gce.links import GLOBAL, link, path_of
from simulators.gce.resources import ProjectResource

if TYPE_CHECKING:
    from simulators.gce.cloud import Project

PENDING, RUNNING, DONE = "PENDING", "RUNNING", "DONE"
PREEMPTED: Final = "compute.instances.preempted"
SYSTEM: Final = "system"


@dataclass
class ProjectOperation:
    """One of them. ``made``: seconds since the epoch."""

    project: str
    scope: str
    name: str
    document: Json
    made: float

    @property
    def path(self) -> str:
        return path_of(self.project, self.scope, "operations", self.name)

    @property
    def over(self) -> bool:
        return bool(self.document["status"] == DONE)


class ProjectOperations:
    """All of a project.

    :param cloud: gives time, numbers and the name of the user.
    """

    def __init__(self, cloud: Project) -> None:
        self._cloud = cloud
        #: Oldest first.
        self._all: dict[str, ProjectOperation] = {}
        #: By call and ``requestId``.
        self._requests: dict[tuple[str, str], ProjectOperation] = {}
        self._number = 0

    def begin(self, kind: str, target: ProjectResource, request_id: str = "", user: str = "") -> ProjectOperation:
        """A new one, PENDING.

        :param kind: of operation, such as ``insert``.
        :param request_id: of the call.
        """
        core = self._cloud.core
        self._number += 1
        # What Google does by itself has another name.
        origin = "systemevent" if user == SYSTEM else "operation"
        name = f"{origin}-{int(core.now() * 1000)}-{self._number:013x}-{self._number % 65521:08x}"
        scope = target.scope or GLOBAL
        path = path_of(target.project, scope, "operations", name)
        document: Json = {
            "kind": "compute#operation",
            "id": self._cloud.resources.new_id(),
            "name": name,
            "operationType": kind,
            "targetLink": target.link,
            "targetId": target.document.get("id", "0"),
            "status": PENDING,
            "user": user or self._cloud.email,
            "progress": 0,
            "insertTime": core.stamp(),
            "selfLink": link(path),
        }
        place, _, where = scope.partition("/")
        if where:
            document[place[:-1]] = link(f"projects/{target.project}/{place}/{where}")
        if request_id:
            document["clientOperationId"] = request_id
        operation = ProjectOperation(target.project, scope, name, document, core.now())
        self._all[path] = operation
        return operation

    def run(self, operation: ProjectOperation) -> None:
        """It is worked on."""
        if operation.document["status"] == PENDING:
            operation.document |= {"status": RUNNING, "startTime": self._cloud.core.stamp()}

    def end(self, operation: ProjectOperation, error: Json | None = None, status: int = 400) -> None:
        """It has ended. Twice does nothing.

        :param error: as `errors.operation_error` makes it.
        :param status: of HTTP, that belongs to the error.
        """
        if operation.over:
            return
        self.run(operation)
        operation.document |= {"status": DONE, "progress": 100, "endTime": self._cloud.core.stamp()}
        if error is not None:
            operation.document |= {
                "error": {"errors": [error]},
                "httpErrorStatusCode": status,
                "httpErrorMessage": TITLES.get(status, "ERROR"),
            }

    def done(self, kind: str, target: ProjectResource, request_id: str = "", user: str = "") -> ProjectOperation:
        """One that has ended already."""
        operation = self.begin(kind, target, request_id, user)
        self.end(operation)
        return operation

    def repeated(self, call: str, request_id: str) -> ProjectOperation | None:
        """That of an earlier call with the same ``requestId``; None = it is the first.

        :param call: method and path.

        :raises ApiError: 400, this is none.
        """
        if not request_id:
            return None
        try:
            number = uuid.UUID(request_id).int
        except ValueError:
            number = 0
        if not number:
            raise ApiError(400, f"Invalid value for field 'requestId': '{request_id}'. Must be a valid UUID.")
        return self._requests.get((call, request_id))

    def remember(self, call: str, request_id: str, operation: ProjectOperation) -> None:
        """The call was accepted. Those that were refused are not remembered."""
        if request_id:
            self._requests[call, request_id] = operation

    def get(self, path: str) -> ProjectOperation:
        """One of them.

        :raises ApiError: 404.
        """
        found = self._all.get(path)
        if found is None:
            raise not_found(path)
        return found

    def newest_first(self) -> Iterator[ProjectOperation]:
        """All that are still known."""
        oldest = self._cloud.core.now() - self._cloud.core.knobs.operation_seconds
        for path, operation in list(self._all.items()):
            if operation.made >= oldest:
                break
            if operation.over:
                del self._all[path]
        return iter(list(reversed(self._all.values())))

    def running(self, kind: str) -> Iterator[ProjectOperation]:
        """Those that have not ended."""
        return (
            operation
            for operation in self._all.values()
            if not operation.over and operation.document["operationType"] == kind
        )
