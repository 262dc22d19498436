# SPDX-License-Identifier: Apache-2.0
"""The simulated OpenStack in a simulated world: the real driver, but no session of keystoneauth."""

from __future__ import annotations

import urllib.parse
from collections.abc import Mapping
from typing import Any, ClassVar, Final

import pytest
from openstack.config import defaults
from openstack.config.cloud_region import CloudRegion
from requests.structures import CaseInsensitiveDict

from nodepool import fast_json
from nodepool.driver.framework.cloud_errors import CloudAway
from nodepool.driver.openstack import OpenStackDriver, clouds
from nodepool.driver.openstack import transport as openstack_transport
from nodepool.driver.openstack.clouds import Clouds, CloudSettings
from nodepool.driver.openstack.transport import Transport
from simulators.base.messages import Answer
from simulators.openstack.application import CloudApplication
from simulators.openstack.cloud import KEY, Cloud
from simulators.openstack.knobs import BootRule, ErrorRule, Knobs
from tests.model.cloud import cloud_of
from tests.model.simulated_cloud import SimulatedCloud, SimulatedMoves
from tests.model.world import World
from tests.support.clouds import openstack_section

URL: Final = "https://openstack.invalid"
TOKEN: Final = "token"
#: Seconds from the order until a server is gone.
DELETE_SECONDS: Final = (0.0, 2.0)


class OpenStackModelCloud(SimulatedCloud):
    """:ivar whole: what is there; the settings say what goes wrong."""

    driver_name = "openstack"
    error_rule = ErrorRule
    boot_rule = BootRule
    sizes: ClassVar = {size: {"flavor-name": size, "key-name": KEY} for size in ("small", "large")}
    networks: ClassVar = {"networks": ["provider"]}

    def __init__(self, world: World) -> None:
        boot = world.setup.boot_seconds
        knobs = Knobs(boot_seconds=(boot / 2, boot), delete_seconds=DELETE_SECONDS)
        self.whole = Cloud(knobs, world.setup.order, lambda: world.now)
        application = CloudApplication(self.whole)
        application.identity.tokens[TOKEN] = float("inf")
        project = self.whole.core.project_id
        self.roots = {
            "compute": "/compute/v2.1",
            "network": "/network/v2.0",
            "image": "/image/v2",
            "block-storage": f"/volume/v3/{project}",
        }
        super().__init__(world, application, self.whole.core)

    def make_driver(self) -> ModelOpenStackDriver:
        return ModelOpenStackDriver()

    def section(self) -> dict[str, Any]:
        return openstack_section()

    def refuse_for_quota(self) -> None:
        self._once(
            self.create_call, "403", message="Quota exceeded for instances: Requested 1, but already used 1 of 1"
        )

    def throttle(self) -> None:
        self._once("compute.*", "429", count=3)

    def no_room(self, late: bool) -> BootRule:
        """Nova finds no host, after it has taken the order."""
        return BootRule(kind="no-valid-host")

    def set_room(self, room: bool, late: bool = False) -> None:
        self.knobs.boots = [] if room else [self.no_room(late)]

    def set_lag(self, lags: bool) -> None:
        self.knobs.hidden_rate, self.knobs.hidden_seconds = 0.5 if lags else 0.0, self.lag_seconds

    def heal(self) -> None:
        super().heal()
        self.knobs.latencies = {}

    def send(self, service: str, method: str, path: str, given: Mapping[str, Any]) -> Answer | None:
        """One call of the driver; None = there is no answer."""
        query = urllib.parse.urlencode(given.get("params") or {}, doseq=True)
        headers = {"x-auth-token": TOKEN, "host": "openstack.invalid", **(given.get("headers") or {})}
        body = fast_json.dumps(given["json"]) if "json" in given else b""
        url = f"{URL}{self.roots[service]}{path}?{query}"
        return self.api.ask(method, url, headers, body, given.get("data"))


class ModelClouds(Clouds):
    """In place of clouds.yaml."""

    def region(self, cloud: str, region: str | None) -> CloudRegion:
        auth = {"auth_url": URL, "username": "zuul", "password": "secret", "project_name": "ci"}
        return CloudRegion(cloud, "RegionOne", config={**defaults.get_defaults(), "auth": auth})

    def settings(self, cloud: str, region: str | None) -> CloudSettings:
        return CloudSettings(clouds.settings_of(self.region(cloud, region)))

    def files(self) -> list[str]:
        return []


class ModelOpenStackDriver(OpenStackDriver):
    def __init__(self) -> None:
        self._clouds = ModelClouds()


class ModelResponse:
    """What is used of one of requests."""

    encoding = "utf-8"

    def __init__(self, answer: Answer) -> None:
        self.status_code = answer.status
        self.headers = CaseInsensitiveDict({"Content-Type": answer.content_type, **answer.headers})
        self.content = bytes(answer.body)

    def json(self) -> Any:
        return fast_json.loads(self.content)


class ModelClient:
    """In place of keystoneauth's adapter of a service."""

    def __init__(self, _region: object, service: str) -> None:
        self._service = service

    def request(self, url: str, method: str, **arguments: Any) -> ModelResponse:
        answer = cloud_of(World.current(), OpenStackModelCloud).send(self._service, method, url, arguments)
        if answer is None:
            raise CloudAway("no answer", maybe_done=True)
        return ModelResponse(answer)


class OpenStackWorld(World):
    """See `World`."""

    moves_class = SimulatedMoves

    def make_cloud(self) -> OpenStackModelCloud:
        return OpenStackModelCloud(self)

    def patch(self, patch: pytest.MonkeyPatch) -> None:
        def sleep(transport: Transport, seconds: float) -> None:
            if self.baton.wait(transport.stopped.is_set, self.now + seconds):
                raise CloudAway("the provider was stopped", maybe_done=False)

        patch.setattr(Transport, "_sleep", sleep)
        patch.setattr(openstack_transport, "make_http_client", ModelClient)
