# SPDX-License-Identifier: Apache-2.0
"""Takes each request through token, role and faults to its service."""

from __future__ import annotations

from fnmatch import fnmatchcase

from simulators.base.application import SimulatedApplication
from simulators.base.faults import fault_answer
from simulators.base.messages import Answer, ApiError, Request
from simulators.base.rules import ErrorRule
from simulators.gce.admin_api import GceAdminApi
from simulators.gce.cloud import Project
from simulators.gce.compute_api import GoogleComputeApi
from simulators.gce.errors import MESSAGES, error_answer
from simulators.gce.links import PROJECT
from simulators.gce.settings import GceErrorRule
from simulators.gce.storage_api import PIECE, GoogleStorageApi
from simulators.gce.token_api import GoogleTokenApi


class GceApplication(SimulatedApplication):
    """Compute Engine, Cloud Storage, the token endpoint and the metadata server at one address."""

    def __init__(self, cloud: Project) -> None:
        super().__init__(cloud.core)
        self.cloud = cloud
        self.admin = GceAdminApi(cloud, self)
        self.compute = GoogleComputeApi(cloud)
        self.storage = GoogleStorageApi(cloud)
        self.tokens = GoogleTokenApi(cloud)

    def operation(self, request: Request) -> str | None:
        """Google's name of the method, such as ``instances.insert``; None = ``/admin``, or there is none."""
        found = self.tokens.operation(request) or self.storage.operation(request)
        if found is not None:
            return found
        method = self.compute.find(request)
        return None if method is None else method[0].name

    def serve(self, request: Request) -> Answer:
        if request.path.startswith("/admin/"):
            return self.admin.handle(request)
        operation = self.operation(request)
        if operation is None:
            return error_answer(ApiError(404, f"There is no {request.method} {request.path}.", "notFound"))
        rule = self.fault(operation)
        if rule is not None and not rule.after:
            return self._fault(rule)
        answer = self._serve(request, operation)
        return answer if rule is None else self._fault(rule)

    def _serve(self, request: Request, operation: str) -> Answer:
        if self.tokens.operation(request) is not None:
            return self.tokens.serve(request)
        # The address of an upload is a secret by itself.
        if operation != PIECE and not self.tokens.valid(request):
            text = "Request had invalid authentication credentials. Expected OAuth 2 access token."
            headers = {"WWW-Authenticate": 'Bearer realm="https://accounts.google.com/", error="invalid_token"'}
            return error_answer(ApiError(401, text, "authError", headers))
        if any(fnmatchcase(operation, pattern) for pattern in self.cloud.core.knobs.denied):
            return error_answer(ApiError(403, f"Required '{_permission(operation)}' permission for '{_of(request)}'"))
        method = self.compute.find(request)
        if method is None:
            return self.storage.serve(request)
        return self.compute.serve(request, *method)

    def _fault(self, rule: ErrorRule) -> Answer:
        reason = rule.reason if isinstance(rule, GceErrorRule) else ""

        def error(told: ApiError) -> Answer:
            return error_answer(ApiError(told.status, told.message, reason, told.headers))

        return fault_answer(rule, error, MESSAGES)


def _permission(operation: str) -> str:
    collection, _, method = operation.partition(".")
    service = "storage" if collection in ("objects", "buckets") else "compute"
    verbs = {"insert": "create", "aggregatedList": "list", "getFromFamily": "getFromFamily"}
    return f"{service}.{collection}.{verbs.get(method, method)}"


def _of(request: Request) -> str:
    """What a request is about."""
    path = request.path.partition("/v1/")[2]
    return path if path.startswith("projects/") else f"projects/{PROJECT}"
