# SPDX-License-Identifier: Apache-2.0
"""A cloud of `simulators` in a simulated world: the faults that each of them knows, and their moves."""

from __future__ import annotations

import abc
import urllib.parse
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from requests.structures import CaseInsensitiveDict

from nodepool.driver.framework.cloud_errors import CloudAway
from nodepool.driver.framework.http import plain_http
from nodepool.driver.framework.http.plain_http import HttpAnswer, NoAnswer
from nodepool.driver.framework.http.rest_calls import RestCalls
from simulators.base.messages import Request
from tests.model.cloud import ModelCloud, ModelServer
from tests.model.cloud_api import ModelApi
from tests.model.moves import Moves
from tests.model.world import World
from tests.support.clouds import CLOUDS

if TYPE_CHECKING:
    from simulators.base.application import SimulatedApplication
    from simulators.base.core import SimulationCore
    from simulators.base.rules import ErrorRule, Range, Rule


class SimulatedCloud(ModelCloud):
    """:ivar application: answers the calls.

    :cvar error_rule: says which calls go wrong; ``boot_rule``: which servers do not come up.
    :cvar lag_seconds: how long lists may be late.
    :cvar sizes: keys of each label; ``networks``: those of each pool.
    """

    error_rule: ClassVar[type[ErrorRule]]
    boot_rule: ClassVar[type[Rule]]
    lag_seconds: ClassVar[Range] = (0.5, 4.0)
    sizes: ClassVar[Mapping[str, Mapping[str, Any]]]
    networks: ClassVar[Mapping[str, Any]] = {}

    def __init__(self, world: World, application: SimulatedApplication, core: SimulationCore[Any]) -> None:
        self._world = world
        self._core = core
        self.application: Any = application
        self.api = ModelApi(world, application)
        self.words = CLOUDS[self.driver_name]
        self.create_call = self.words.operations["create"]

    @property
    def knobs(self) -> Any:
        """The settings of the simulator."""
        return self._core.knobs

    @property
    def events(self) -> Counter[str]:
        """What has happened, as the simulator counts it."""
        return self._core.events

    @abc.abstractmethod
    def section(self) -> dict[str, Any]:
        """The provider, before its pools are chosen."""

    def provider_config(self, name: str, pools: Sequence[dict[str, Any]]) -> Any:
        section = {**self.section(), "name": name, "pools": []}
        (image,) = section["cloud-images"]
        for pool in pools:
            names = [label["name"] for label in pool["labels"]]
            labels = [{"name": name, "cloud-image": image["name"], **self.sizes[name]} for name in names]
            section["pools"].append({**pool, **self.networks, "labels": labels, "host-key-checking": False})
        if self.words.zones:
            self.words.choose_zones(section)
        config = self.make_driver().getProviderConfig(section)
        config.getSchema()(section)
        return config

    @property
    def creations(self) -> int:
        return self.events[self.words.making]

    def servers(self) -> list[ModelServer]:
        self._core.run_due()
        return [ModelServer(name, marks) for name, marks in self.words.listed(self.application)]

    @abc.abstractmethod
    def throttle(self) -> None:
        """The next calls are put off."""

    @abc.abstractmethod
    def no_room(self, late: bool) -> object:
        """The rule by which the first of the zones has no capacity.

        :param late: the order is taken, and fails later; for clouds that do so.
        """

    def server_of(self, external_id: Any) -> str | None:
        return external_id if isinstance(external_id, str) else None

    def lose_answer(self) -> None:
        self._once(self.create_call, "drop", after=True)

    def fail_creation(self) -> None:
        self.knobs.boots.append(self.boot_rule(count=1))

    def set_away(self, away: bool) -> None:
        self.knobs.errors = [self.error_rule(operation="*", kind="503")] if away else []

    def set_room(self, room: bool, late: bool = False) -> None:
        """Has the first of the zones some? If not: does that show late?"""
        self.knobs.capacity = [] if room else [self.no_room(late)]

    def set_lag(self, lags: bool) -> None:
        """Do lists show late which servers are new, and which are gone?"""
        self.knobs.hidden_rate = self.knobs.ghost_rate = 0.5 if lags else 0.0
        self.knobs.hidden_seconds = self.knobs.ghost_seconds = self.lag_seconds

    def heal(self) -> None:
        self.set_away(False)
        self.set_room(True)
        self.set_lag(False)
        self.knobs.boots = []

    def _once(self, operation: str, kind: str, count: int = 1, **how: Any) -> None:
        """The next calls of an operation go wrong."""
        self.knobs.errors.insert(0, self.error_rule(operation=operation, kind=kind, count=count, **how))


class SimulatedMoves(Moves):
    """What can happen in such a cloud, too."""

    @property
    def _simulated(self) -> SimulatedCloud:
        cloud = self._world.cloud
        assert isinstance(cloud, SimulatedCloud)
        return cloud

    def do_throttled(self, _: int) -> None:
        self._simulated.throttle()

    def do_no_room(self, number: int) -> None:
        self._simulated.set_room(number % 2 == 0)

    def do_lag(self, number: int) -> None:
        self._simulated.set_lag(number % 2 == 0)


class LateRoomMoves(SimulatedMoves):
    """Of a cloud whose capacity may be missing after it took the order, too."""

    def do_no_room(self, number: int) -> None:
        self._simulated.set_room(number % 3 == 0, number % 3 == 1)


class RestModelCloud(SimulatedCloud):
    """Its calls are those of `RestCalls`."""

    def is_login(self, path: str) -> bool:
        """Is it the path of a call for a token? Nobody else does something before or after it: threads of a launcher
        wait for each other's logins, which threads of a world cannot.
        """
        return path.endswith("/token")

    def send(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> HttpAnswer:
        """One call of the driver, in place of `plain_http.PlainHttp.send`."""
        parts = urllib.parse.urlsplit(url)
        given = {**headers, "host": parts.netloc}
        if self.is_login(parts.path):
            own = {name.lower(): value for name, value in given.items()}
            answer = self.application.handle(Request(method, parts.path, urllib.parse.parse_qs(parts.query), own, body))
        else:
            found = self.api.ask(method, url, given, body)
            if found is None:
                raise NoAnswer("no answer", maybe_done=True)
            answer = found
        found_headers = CaseInsensitiveDict({"Content-Type": answer.content_type, **answer.headers})
        return HttpAnswer(answer.status, found_headers, answer.body)


class ModelHttp:
    """In place of `plain_http.PlainHttp`."""

    def __init__(self, connections: int) -> None:
        pass

    def close(self) -> None:
        """There are no connections."""

    def send(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes | None = None,
        query: Mapping[str, str] | None = None,
        seconds: float = 0.0,
    ) -> HttpAnswer:
        cloud = World.current().cloud
        assert isinstance(cloud, RestModelCloud)
        whole = f"{url}?{urllib.parse.urlencode(query)}" if query else url
        return cloud.send(method, whole, headers, body or b"")


class RestWorld(World):
    """A world with such a cloud."""

    moves_class: ClassVar[type[Moves]] = LateRoomMoves

    def patch(self, patch: pytest.MonkeyPatch) -> None:
        def sleep(calls: RestCalls, seconds: float) -> None:
            if self.baton.wait(calls.stopped.is_set, self.now + seconds):
                raise CloudAway("the provider was stopped", maybe_done=False)

        patch.setattr(RestCalls, "_sleep", sleep)
        patch.setattr(plain_http, "PlainHttp", ModelHttp)
