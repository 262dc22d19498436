# SPDX-License-Identifier: Apache-2.0
"""The simulated region of AWS in a simulated world: the real driver and the real botocore, but no connection."""

# The model takes the place of botocore's transport and of waits inside ours.
# ruff: noqa: SLF001
from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Final

import pytest
from botocore.awsrequest import AWSResponse
from botocore.exceptions import ConnectionClosedError

from nodepool.driver.aws import AwsAdapter, AwsDriver
from nodepool.driver.aws.client import AwsTransport
from nodepool.driver.aws.instances import instance_of
from simulators.aws.application import AwsApplication
from simulators.aws.cloud import Region
from simulators.aws.settings import AwsErrorRule, AwsSettings, CapacityRule, InstanceBootRule
from simulators.aws.simulator import environment
from tests.model.cloud import cloud_of
from tests.model.setup import Setup
from tests.model.simulated_cloud import SimulatedCloud, SimulatedMoves
from tests.model.world import World
from tests.support.clouds import aws_section

if TYPE_CHECKING:
    from botocore.awsrequest import AWSPreparedRequest

REGION: Final = "us-east-1"
#: Seconds from the order until an instance has ended, and for so long it is listed then.
END_SECONDS: Final = (0.0, 2.0)
TERMINATED_SECONDS: Final = 60.0


class AwsModelCloud(SimulatedCloud):
    """:ivar region: what is there; the settings say what goes wrong."""

    driver_name = "aws"
    error_rule = AwsErrorRule
    boot_rule = InstanceBootRule

    sizes: ClassVar = {
        "small": {"instance-type": "t3.small", "key-name": "zuul"},
        "large": {"instance-type": "t3.large", "key-name": "zuul"},
    }

    def __init__(self, world: AwsWorld) -> None:
        self.throttles = world.throttles
        boot = world.setup.boot_seconds
        settings = AwsSettings(
            boot_seconds=(boot / 2, boot),
            end_seconds=END_SECONDS,
            terminated_seconds=TERMINATED_SECONDS,
            throttles=world.throttles,
        )
        self.region = Region(settings, world.setup.order, lambda: world.now)
        super().__init__(world, AwsApplication(self.region), self.region.core)

    def make_driver(self) -> ModelAwsDriver:
        return ModelAwsDriver()

    def section(self) -> dict[str, Any]:
        return {**aws_section(self.region.image_id), "rate": 2 if self.throttles else 0}

    def server_of(self, external_id: Any) -> str | None:
        return instance_of(external_id)

    def refuse_for_quota(self) -> None:
        self._once(self.create_call, "400", code="VcpuLimitExceeded")

    def throttle(self) -> None:
        self._once("ec2.*", "503", code="RequestLimitExceeded", count=3)

    def no_room(self, late: bool) -> CapacityRule:
        return CapacityRule(zone=self.words.zones[0])

    def set_lag(self, lags: bool) -> None:
        """Are new instances, their tags and the end of instances shown late?"""
        self.knobs.hidden_rate = self.knobs.tag_lag_rate = 0.5 if lags else 0.0
        self.knobs.hidden_seconds = self.knobs.tag_lag_seconds = self.lag_seconds
        self.knobs.late_tags = lags


class AwsWorld(World):
    """:param throttles: does AWS take as few calls as it documents?"""

    moves_class = SimulatedMoves

    def __init__(self, setup: Setup, *, throttles: bool = False, trace: bool = False) -> None:
        self.throttles = throttles
        super().__init__(setup, trace=trace)

    def make_cloud(self) -> AwsModelCloud:
        return AwsModelCloud(self)

    def patch(self, patch: pytest.MonkeyPatch) -> None:
        def sleep(transport: AwsTransport, seconds: float) -> None:
            if self.baton.wait(transport.stopped.is_set, self.now + seconds):
                raise transport._stopped("a call")

        patch.setattr(AwsTransport, "sleep", sleep)


class ModelAwsDriver(AwsDriver):
    """Its clients are those of all worlds: to make one takes long."""

    def getAdapter(self, provider_config: Any) -> AwsAdapter:
        name, rate = provider_config.name, provider_config.rate
        return AwsAdapter(provider_config, AwsTransport(name, REGION, None, rate, _Client))


class _Client:
    """A client of botocore that others use, too."""

    def __init__(self, service: str) -> None:
        self._client = _client(service)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def close(self) -> None:
        """The others go on."""


@cache
def _client(service: str) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment("http://region.invalid").items():
            patch.setenv(name, value)
        client = AwsTransport("model", REGION, None, 0)._client_of_botocore(service)
        client.meta.events.register("before-send", _send)
        # It looks up its credentials now.
        client._request_signer._credentials.get_frozen_credentials()
    return client


def _send(request: AWSPreparedRequest, **_: Any) -> AWSResponse:
    """What botocore does in place of sending a request."""
    cloud = cloud_of(World.current(), AwsModelCloud)
    body = request.body or b""
    headers = {name: value if isinstance(value, str) else value.decode() for name, value in request.headers.items()}
    answer = cloud.api.ask(request.method, request.url, headers, body if isinstance(body, bytes) else body.encode())
    if answer is None:
        raise ConnectionClosedError(request=request, endpoint_url=request.url)
    headers = {"content-type": answer.content_type, **{name.lower(): value for name, value in answer.headers.items()}}
    return AWSResponse(request.url, answer.status, headers, _Body(answer.body))


class _Body:
    """As urllib3 gives it to botocore."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def stream(self, *_: Any, **__: Any) -> Iterator[bytes]:
        yield self._data
