# SPDX-License-Identifier: Apache-2.0
"""A cloud of `simulators` in a simulated world: the faults that each of them knows, and their moves."""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING, Any, ClassVar

from tests.model.cloud import ModelCloud
from tests.model.cloud_api import ModelApi
from tests.model.moves import Moves

if TYPE_CHECKING:
    from simulators.base.application import SimulatedApplication
    from simulators.base.rules import ErrorRule, Range, Rule
    from tests.model.world import World


class SimulatedCloud(ModelCloud):
    """:ivar application: answers the calls.

    :cvar create_call: the call that makes a server.
    :cvar error_rule: says which calls go wrong; ``boot_rule``: which servers do not come up.
    :cvar lag_seconds: how long lists may be late.
    """

    create_call: ClassVar[str]
    error_rule: ClassVar[type[ErrorRule]]
    boot_rule: ClassVar[type[Rule]]
    lag_seconds: ClassVar[Range] = (0.5, 4.0)

    def __init__(self, world: World, application: SimulatedApplication) -> None:
        self._world = world
        self.application = application
        self.api = ModelApi(world, application)

    @property
    @abc.abstractmethod
    def knobs(self) -> Any:
        """The settings of the simulator."""

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
