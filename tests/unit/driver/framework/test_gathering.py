# SPDX-License-Identifier: Apache-2.0
"""How the nodes of a request are gathered, launched and deleted, with a driver that does what the test says."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from nodepool.driver.framework.handler_hooks import NodeLauncher
from nodepool.driver.framework.quota_support import MOST, QuotaSupport, ZonePlaces
from nodepool.exceptions import (
    LaunchNetworkException,
    QuotaException,
    ServerCreateTimeoutException,
    ZKConnectionError,
)
from nodepool.metrics.reports import report_launch
from nodepool.model import states
from nodepool.model.node import Node, QuotaInformation
from tests.support.scripted_driver import ScriptedHandler, ScriptedProvider, Stage
from tests.support.tables import rows

NO_WAY = RuntimeError("no way")


def throw(error: BaseException) -> Callable[..., Any]:
    def do(*_: Any, **__: Any) -> Any:
        raise error

    return do


# -- ready nodes --


class Place(NamedTuple):
    zone: str
    size: str = "small"


@rows(__file__, "zones")
def test_zone_of_a_request(steps: list[tuple[str, str]], chosen: str) -> None:
    """N-7: of those whose first node was to be in z1. Old requests are forgotten."""
    zones: ZonePlaces[Place] = ZonePlaces()

    def request(key: str) -> Any:
        return SimpleNamespace(key=key, node_types=["small", "small"])

    def zone_of(key: str, first: str, other: str) -> str:
        return zones.to_try([Place(first), Place(other)], request(key), None)[0].zone

    assert zone_of("a", "z1", "z2") == zone_of("a", "z2", "z1") == "z1"
    for what, zone in steps:
        getattr(zones, what)(Place(zone, "large"), request("a"))
    assert zone_of("a", "z2", "z1") == chosen
    assert zone_of("b", "z9", "z1") == "z9"
    for number in range(MOST):
        zone_of(str(number), "z1", "z2")
    assert zone_of("a", "z7", chosen) == "z7"


class QuotaProvider(QuotaSupport, ScriptedProvider):
    def __init__(self, config: Any) -> None:
        QuotaSupport.__init__(self)
        ScriptedProvider.__init__(self, config)

    def quotaNeededByLabel(self, label: str, pool: Any) -> QuotaInformation:
        return QuotaInformation(cores=2, instances=1, ram=float("inf"))

    def unmanagedQuotaUsed(self) -> QuotaInformation:
        return QuotaInformation()

    getProviderLimits = unmanagedQuotaUsed

    def errorLabels(self) -> list[str]:
        return []


@pytest.mark.parametrize(
    ("cores", "has_place", "looks", "reused"),
    [
        # As a new one would be: all nodes are counted when it is locked, not before.
        (2, lambda locked: True, [True], True),
        (8, lambda locked: True, [False, True], True),
        # Too large for the tenant, or the limit was filled meanwhile: others can have it.
        (8, lambda locked: False, [False], False),
        (2, lambda locked: not locked, [True], False),
    ],
)
def test_tenant_has_no_place_for_a_ready_node(
    monkeypatch: pytest.MonkeyPatch, cores: int, has_place: Any, looks: list[bool], reused: bool
) -> None:
    """A-8, Q-15."""
    stage = Stage(QuotaProvider)
    stage.provider.room = 0
    ready = stage.add_ready(resources={"cores": cores, "instances": 1})
    seen: list[bool] = []

    def place(node: Node, *, reused: bool = False) -> bool:
        seen.append(stage.zk.isNodeLocked(ready))
        return bool(has_place(seen[-1]))

    monkeypatch.setattr(stage, "tenant_has_place", place)
    handler = stage.begin("small", tenant_name="poor")
    assert seen[: len(looks)] == looks
    assert bool(handler.reused) is stage.zk.isNodeLocked(ready) is reused


# -- launches --


@pytest.fixture
def reported(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Keys of the launches that were counted."""
    keys: list[str] = []
    # There is one place of the process where launches are counted.
    monkeypatch.setattr(
        sys.modules[report_launch.__module__], "report_launch", lambda key, *args, **more: keys.append(key)
    )
    return keys


class Launcher(NodeLauncher):
    def __init__(self, handler: ScriptedHandler, do: Callable[[Node], object]) -> None:
        super().__init__(handler, handler.launched[0])
        self.do = do

    def launch(self) -> None:
        self.do(self.node)


class Unreadable(Exception):
    @property
    def statsd_key(self) -> str:
        raise NO_WAY


@pytest.mark.parametrize(
    ("do", "stored", "state", "key"),
    [
        (lambda node: setattr(node, "external_id", "x"), states.READY, states.READY, "ready"),
        (throw(LaunchNetworkException("no address")), states.FAILED, states.FAILED, "error.network"),
        (throw(QuotaException("full")), states.ABORTED, states.ABORTED, "error.quota"),
        (throw(ServerCreateTimeoutException("slow")), states.FAILED, states.FAILED, "error.servercreatetimeout"),
        (throw(NO_WAY), states.FAILED, states.FAILED, "error.unknown"),
        (throw(SystemExit(1)), states.FAILED, states.FAILED, "error.unknown"),
        (throw(ZKConnectionError("away")), states.FAILED, states.FAILED, "error.zksession"),
        # What is not stored is not ready. Not even an error that cannot be read leaves the handler waiting for ever.
        (throw(Unreadable()), states.BUILDING, states.FAILED, "error.unknown"),
        (lambda node: setattr(node, "driver_data", object()), states.BUILDING, states.FAILED, "error.unknown"),
    ],
)
def test_launches(stage: Stage, reported: list[str], do: Any, stored: str, state: str, key: str) -> None:
    """L-6, L-7, L-9, L-12: the class of the error decides; what the driver filled in is stored with `ready`."""
    launcher = Launcher(stage.begin("small"), do)
    launcher.run()
    assert launcher.complete
    [node] = stage.zk.nodeIterator()
    assert (node.state, launcher.node.state, reported) == (stored, state, [key])
    assert (node.external_id == "x") is (state == states.READY)
