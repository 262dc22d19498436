# SPDX-License-Identifier: Apache-2.0
"""Takes each request through signature, policy and faults to its service."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import Final

from simulators.aws.admin_api import AwsAdminApi
from simulators.aws.cloud import Region
from simulators.aws.ebs import EbsService
from simulators.aws.services import AwsService, Ec2Service, QuotaService
from simulators.aws.settings import AwsErrorRule
from simulators.base.application import SimulatedApplication
from simulators.base.faults import fault_answer
from simulators.base.messages import Answer, ApiError, BodySink, Request, json_answer
from simulators.base.rules import ErrorRule
from simulators.base.s3_api import S3Api

MESSAGES: Final = {
    400: "The request is not valid.",
    403: "You are not authorized to perform this operation.",
    500: "An internal error has occurred",
    503: "The server is overloaded and can't handle the request.",
}
_SCOPE: Final = re.compile(r"Credential=([^/]+)/\d+/([^/]+)/([^/]+)/aws4_request")


class AwsApplication(SimulatedApplication):
    """All services at one address; the signature of a request says which one it is for."""

    def __init__(self, cloud: Region) -> None:
        super().__init__(cloud.core)
        self.cloud = cloud
        self.admin = AwsAdminApi(cloud, self)
        self.ec2 = Ec2Service(cloud)
        storage = S3Api(cloud.objects, lambda: cloud.core.knobs.page_limit)
        services: list[AwsService] = [self.ec2, QuotaService(cloud), EbsService(cloud), storage]
        self._services = {service.name: service for service in services}

    def operation(self, request: Request) -> str | None:
        """``<service>.<operation>``; None = ``/admin``."""
        service, _key = self._service(request)
        return None if service is None else f"{service.name}.{service.operation(request)}"

    def body_sink(self, request: Request) -> BodySink | None:
        service, _key = self._service(request)
        return None if service is None else service.body_sink(request)

    def serve(self, request: Request) -> Answer:
        service, key = self._service(request)
        if service is None:
            if request.path.startswith("/admin/"):
                return self.admin.handle(request)
            return json_answer({"message": "the request is not signed for a service that there is"}, 403)
        operation = f"{service.name}.{service.operation(request)}"
        rule = self.fault(operation)
        if rule is not None and not rule.after:
            return _fault(rule, service)
        answer = self._serve(service, operation, key, request)
        return answer if rule is None else _fault(rule, service)

    def _serve(self, service: AwsService, operation: str, key: str, request: Request) -> Answer:
        knobs = self.cloud.core.knobs
        try:
            if key != knobs.access_key:
                text = "AWS was not able to validate the provided access credentials"
                raise ApiError(401, text, "AuthFailure" if service.name == "ec2" else "UnrecognizedClientException")
            if any(fnmatchcase(operation, pattern) for pattern in knobs.denied):
                text = f"You are not authorized to perform this operation: {operation}"
                raise ApiError(403, text, "UnauthorizedOperation" if service.name == "ec2" else "AccessDeniedException")
            return service.serve(request)
        except ApiError as error:
            self.cloud.core.events[f"refused {error.kind}"] += 1
            return service.error(error)

    def _service(self, request: Request) -> tuple[AwsService | None, str]:
        """The service, and the access key."""
        found = _SCOPE.search(request.headers.get("authorization", ""))
        return (self._services.get(found[3]), found[1]) if found else (None, "")


def _fault(rule: ErrorRule, service: AwsService) -> Answer:
    code = rule.code if isinstance(rule, AwsErrorRule) else ""

    def error(told: ApiError) -> Answer:
        return service.error(ApiError(told.status, told.message, code, told.headers))

    return fault_answer(rule, error, MESSAGES)
