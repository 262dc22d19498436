# SPDX-License-Identifier: Apache-2.0
"""Takes each request through token, role and faults to its service."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Final

from simulators.azure.admin_api import AzureAdminApi
from simulators.azure.arm_ids import ArmPath, read_path
from simulators.azure.cloud import Subscription
from simulators.azure.resources import TENANT
from simulators.azure.service import CONSOLE_PATH, ArmService
from simulators.azure.settings import ArmErrorRule
from simulators.azure.token_api import TokenApi
from simulators.azure.upload_api import PAGES, UPLOAD_PATH
from simulators.base.application import SimulatedApplication
from simulators.base.faults import fault_answer
from simulators.base.messages import Answer, ApiError, Request
from simulators.base.rules import ErrorRule

MESSAGES: Final = {
    429: "The request is being throttled as the limit has been reached.",
    500: "Encountered internal server error.",
    503: "The service is temporarily unavailable.",
}


class AzureApplication(SimulatedApplication):
    """The Resource Manager and the token endpoint at one address."""

    def __init__(self, cloud: Subscription) -> None:
        super().__init__(cloud.core)
        self.cloud = cloud
        self.admin = AzureAdminApi(cloud, self)
        self.arm = ArmService(cloud)
        self.tokens = TokenApi(cloud)

    def operation(self, request: Request) -> str | None:
        """``<kind>.<operation>``; None = ``/admin``."""
        if self.tokens.serves(request):
            return "tokens.post"
        if request.path.startswith(UPLOAD_PATH):
            return PAGES
        path = read_path(request.path)
        return None if path is None else self.arm.operation(request, path)

    def serve(self, request: Request) -> Answer:
        if request.path.startswith("/admin/"):
            return self.admin.handle(request)
        if request.path.startswith(CONSOLE_PATH):
            name = request.path.removeprefix(CONSOLE_PATH)
            return Answer(200, f"[    0.000000] Linux version (simulated) of {name}\n{name} login: \n".encode())
        operation = self.operation(request)
        if operation == PAGES:
            rule = self.fault(operation)
            if rule is not None and not rule.after:
                return self._fault(rule)
            answer = self.arm.uploads.put_pages(request)
            return answer if rule is None else self._fault(rule)
        if operation is None:
            return self.arm.error(ApiError(404, f"No route for {request.path}", "InvalidResourceType"))
        rule = self.fault(operation)
        if rule is not None and not rule.after:
            return self._fault(rule)
        path = read_path(request.path)
        answer = self.tokens.serve(request) if path is None else self._serve(request, path, operation)
        return answer if rule is None else self._fault(rule)

    def _serve(self, request: Request, path: ArmPath, operation: str) -> Answer:
        if not self.tokens.valid(request):
            where = f"https://login.microsoftonline.com/{TENANT}"
            headers = {"WWW-Authenticate": f'Bearer authorization_uri="{where}", error="invalid_token"'}
            error = ApiError(401, "The access token is missing, invalid or has ended.", "", headers)
            return self.arm.error(error)
        if any(fnmatchcase(operation, pattern) for pattern in self.cloud.core.knobs.denied):
            return self.arm.error(ApiError(403, f"The client has no authorization to perform {operation}."))
        return self.arm.serve(request, path)

    def _fault(self, rule: ErrorRule) -> Answer:
        code = rule.code if isinstance(rule, ArmErrorRule) else ""

        def error(told: ApiError) -> Answer:
            if told.status >= 500 and not code and self.cloud.core.turn("error", False, True):
                # Of what stands before the service.
                return Answer(
                    told.status, b"<html><body><h1>Service Unavailable</h1></body></html>", told.headers, "text/html"
                )
            return self.arm.error(ApiError(told.status, told.message, code, told.headers))

        return fault_answer(rule, error, MESSAGES)
