# SPDX-License-Identifier: Apache-2.0
"""The services of the region: which call a request is, and how it is answered.

A service has a name as the signatures of requests have it. `Ec2Service` and `QuotaService` are made of handlers by name
of operation; others, such as S3, may read their requests as they like.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import parse_qs

from simulators.aws import buckets
from simulators.aws.fleet_api import FleetOperations
from simulators.aws.host_api import HostOperations
from simulators.aws.image_api import ImageOperations
from simulators.aws.instance_api import InstanceOperations
from simulators.aws.instance_types import InstanceTypeOperations
from simulators.aws.launch_templates import TemplateOperations
from simulators.aws.network_api import NetworkOperations
from simulators.aws.query_protocol import read_form, write_answer, write_error
from simulators.aws.quota_api import QuotaOperations
from simulators.aws.snapshot_api import SnapshotOperations
from simulators.aws.tag_api import TagOperations
from simulators.aws.volume_api import VolumeOperations
from simulators.base.messages import Answer, ApiError, BodySink, Json, Request, new_id
from simulators.base.throttle import Throttle

if TYPE_CHECKING:
    from simulators.aws.cloud import Region

Handler = Callable[[Json], Json]


class AwsService(Protocol):
    """One service of AWS."""

    name: str

    def operation(self, request: Request) -> str:
        """The name of the operation; ``unknown`` if there is none."""

    def serve(self, request: Request) -> Answer:
        """Does it.

        :raises ApiError: it is refused.
        """

    def error(self, error: ApiError) -> Answer:
        """A refusal in the service's shape."""

    def body_sink(self, request: Request) -> BodySink | None:
        """Where the body goes; None keeps it in the request."""


@cache
def service_model(name: str) -> Any:
    """botocore's model of a service; it is what the requests of AWS's own programs are made of."""
    from botocore.session import Session

    return Session().get_service_model(name)


class Ec2Service:
    """EC2's query API. ``operations`` has the handlers; `add` adds those of a part."""

    name = "ec2"

    def __init__(self, cloud: Region) -> None:
        self.cloud = cloud
        self.model = service_model("ec2")
        self.throttle = Throttle(cloud.core.now)
        self.operations: dict[str, Handler] = {}
        self.tags = TagOperations(cloud)
        self.add(InstanceOperations(cloud, self.model.shape_for("Instance")).operations)
        self.add(self.tags.operations)
        self.add(InstanceTypeOperations(cloud).operations)
        self.add(NetworkOperations(cloud).operations)
        self.add(VolumeOperations(cloud).operations)
        self.add(ImageOperations(cloud).operations)
        self.add(SnapshotOperations(cloud).operations)
        self.add(cloud.imports.operations)
        self.add(TemplateOperations(cloud).operations)
        self.add(FleetOperations(cloud).operations)
        self.add(HostOperations(cloud).operations)

    def add(self, operations: dict[str, Handler]) -> None:
        """Adds handlers; each is given the arguments by the names of the service model, and returns the answer."""
        self.operations |= operations

    def body_sink(self, request: Request) -> BodySink | None:
        return None

    def operation(self, request: Request) -> str:
        name = _form(request).get("Action", [""])[0]
        return name if name in self.operations else "unknown"

    def serve(self, request: Request) -> Answer:
        form = _form(request)
        name = form.get("Action", [""])[0]
        if name not in self.operations:
            raise ApiError(400, f"The action {name} is not valid for this web service.", "InvalidAction")
        model = self.model.operation_model(name)
        arguments = read_form(form, model.input_shape)
        if self.cloud.core.knobs.throttles:
            buckets.take(self.throttle, f"ec2.{name}", arguments)
        if arguments.pop("DryRun", False):
            raise ApiError(412, "Request would have succeeded, but DryRun flag is set.", "DryRunOperation")
        content = self.operations[name](arguments)
        body = write_answer(name, content, model.output_shape, new_id())
        return Answer(200, body, content_type="text/xml;charset=UTF-8")

    def error(self, error: ApiError) -> Answer:
        code = error.kind or {401: "AuthFailure", 403: "UnauthorizedOperation", 503: "Unavailable"}.get(
            error.status, "InternalError" if error.status >= 500 else "InvalidParameterValue"
        )
        body = write_error(code, error.message, new_id())
        return Answer(error.status, body, dict(error.headers), "text/xml;charset=UTF-8")


class QuotaService:
    """Service Quotas: JSON."""

    name = "servicequotas"
    _target = "ServiceQuotasV20190624."

    def __init__(self, cloud: Region) -> None:
        self.cloud = cloud
        self.throttle = Throttle(cloud.core.now)
        self.operations: dict[str, Handler] = dict(QuotaOperations(cloud).operations)

    def body_sink(self, request: Request) -> BodySink | None:
        return None

    def operation(self, request: Request) -> str:
        name = self._name(request)
        return name if name in self.operations else "unknown"

    def serve(self, request: Request) -> Answer:
        name = self._name(request)
        if name not in self.operations:
            raise ApiError(400, f"There is no operation {name}", "UnknownOperationException")
        if self.cloud.core.knobs.throttles:
            try:
                buckets.take(self.throttle, f"servicequotas.{name}", {})
            except ApiError:
                raise ApiError(429, "Rate exceeded", "TooManyRequestsException") from None
        body = json.dumps(self.operations[name](request.json())).encode()
        return Answer(200, body, content_type="application/x-amz-json-1.1")

    def error(self, error: ApiError) -> Answer:
        code = error.kind or ("ServiceException" if error.status >= 500 else "IllegalArgumentException")
        body = json.dumps({"__type": code, "Message": error.message}).encode()
        return Answer(error.status, body, dict(error.headers), "application/x-amz-json-1.1")

    def _name(self, request: Request) -> str:
        return request.headers.get("x-amz-target", "").removeprefix(self._target)


def _form(request: Request) -> dict[str, list[str]]:
    return parse_qs(request.body.decode(), keep_blank_values=True) if request.body else request.query
