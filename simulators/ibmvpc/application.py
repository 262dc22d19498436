# SPDX-License-Identifier: Apache-2.0
"""Takes each request through token, access policy and faults to its service."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Final, Protocol

from simulators.base.application import SimulatedApplication
from simulators.base.faults import fault_answer
from simulators.base.messages import Answer, ApiError, Request, json_answer
from simulators.base.rules import ErrorRule
from simulators.ibmvpc.admin_api import IbmVpcAdminApi
from simulators.ibmvpc.cloud import VpcRegion
from simulators.ibmvpc.cos_api import CosApi
from simulators.ibmvpc.iam_api import IamApi
from simulators.ibmvpc.platform_api import PlatformApi
from simulators.ibmvpc.settings import VpcErrorRule
from simulators.ibmvpc.vpc_service import VpcService

MESSAGES: Final = {
    429: "Too many requests. Retry later.",
    500: "An internal error occurred.",
    503: "The system is currently unable to fulfill the request. Please retry.",
}


class IbmService(Protocol):
    """One service of IBM Cloud."""

    name: str

    @staticmethod
    def serves(path: str) -> bool:
        """Is a path one of its?"""

    def operation(self, request: Request) -> str:
        """The name of the operation; ``unknown`` if there is none."""

    def serve(self, request: Request) -> Answer:
        """Does it.

        :raises ApiError: it is refused.
        """

    def error(self, error: ApiError) -> Answer:
        """A refusal in the service's shape."""


class IbmVpcApplication(SimulatedApplication):
    """All services at one address; the path of a request says which one it is for."""

    def __init__(self, cloud: VpcRegion) -> None:
        super().__init__(cloud.core)
        self.cloud = cloud
        self.admin = IbmVpcAdminApi(cloud, self)
        self.iam = IamApi(cloud.core)
        self.platform = PlatformApi(cloud)
        storage = CosApi(cloud.objects, lambda: cloud.core.knobs.page_limit)
        # The last one takes every path: that of a bucket may be anything.
        self._services: tuple[IbmService, ...] = (VpcService(cloud), self.iam, self.platform, storage)

    def operation(self, request: Request) -> str | None:
        """``<service>.<operation>``; None = ``/admin``."""
        service = self._service(request.path)
        return None if service is None else f"{service.name}.{service.operation(request)}"

    def serve(self, request: Request) -> Answer:
        service = self._service(request.path)
        if service is None:
            if request.path.startswith("/admin/"):
                return self.admin.handle(request)
            return json_answer({"message": f"there is no {request.path}"}, 404)
        operation = f"{service.name}.{service.operation(request)}"
        rule = self.fault(operation)
        if rule is not None and not rule.after:
            return _fault(rule, service)
        answer = self._serve(service, operation, request)
        return answer if rule is None else _fault(rule, service)

    def _serve(self, service: IbmService, operation: str, request: Request) -> Answer:
        try:
            if service is not self.iam and not self.iam.valid(request):
                text = "The IAM token that was specified in the request has expired or is invalid."
                raise ApiError(401, text)
            if any(fnmatchcase(operation, pattern) for pattern in self.cloud.core.knobs.denied):
                raise ApiError(403, "The request is not authorized.", "not_authorized")
            return service.serve(request)
        except ApiError as error:
            self.cloud.core.events[f"refused {error.kind or error.status}"] += 1
            return service.error(error)

    def _service(self, path: str) -> IbmService | None:
        if path.startswith("/admin/"):
            return None
        return next((service for service in self._services if service.serves(path)), None)


def _fault(rule: ErrorRule, service: IbmService) -> Answer:
    code = rule.code if isinstance(rule, VpcErrorRule) else ""

    def error(told: ApiError) -> Answer:
        return service.error(ApiError(told.status, told.message, code, told.headers))

    return fault_answer(rule, error, MESSAGES)
