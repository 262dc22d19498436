# SPDX-License-Identifier: Apache-2.0
"""A pool's entry in the registry, without ZooKeeper (rules A-4, A-17)."""

from __future__ import annotations

import socket
from types import SimpleNamespace
from typing import Any, cast

import pytest

from nodepool.launcher.pool import entry as entry_module
from nodepool.launcher.pool.entry import LOOKS_FOR_ITSELF, SIBLINGS_LOOK_SECONDS, SIBLINGS_SECONDS, PoolEntry
from tests.support.manual_clock import ManualClock, monotonic_clock


class Place:
    """A pool ``me`` of provider ``one``; what is written to the registry is in ``written``."""

    launcher_id, provider_name, pool_name = "me", "one", "main"

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.labels = frozenset({"small", "big"})
        self.pool_config = SimpleNamespace(priority=None)
        self.reason: str | None = None
        self.provider = SimpleNamespace(name="one", pausedReason=lambda: self.reason)
        self.registered: list[str] = []
        self.written: list[dict[str, Any]] = []
        self.calls: list[str] = []
        monkeypatch.setattr(entry_module, "Registration", self._registration)
        self.entry = PoolEntry(cast(Any, self), cast(Any, None), "1.0")

    def _registration(self, _client: Any, component: Any) -> Any:
        self.component = component

        def update(**fields: Any) -> None:
            self.written.append(fields)
            for name, value in fields.items():
                setattr(component, name, value)

        return SimpleNamespace(
            update=update,
            ensure=lambda: self.calls.append("ensure"),
            rewrite=lambda: self.calls.append("rewrite"),
            unregister=lambda: self.calls.append("unregister"),
        )

    def registered_pools(self) -> list[Any]:
        return [SimpleNamespace(id=name) for name in self.registered]


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Place:
    return Place(monkeypatch)


def test_written_when_it_changes(place: Place) -> None:
    """A-4: labels, priority and pause of the pool, or of its provider."""
    for paused, reason in ((False, None), (False, None), (True, None), (True, "HTTP 503"), (False, None)):
        place.reason = reason
        place.entry.update(paused=paused)
    assert [fields["paused"] for fields in place.written] == [False, True, False]
    assert place.written[0] == {
        "state": "running",
        "supported_labels": ["big", "small"],
        "priority": 100,
        "paused": False,
    }
    assert place.calls == ["ensure", "ensure"]
    assert place.entry.labels == {"small", "big"}
    place.pool_config.priority = 3
    place.entry.update(paused=False)
    assert place.written[-1]["priority"] == 3


def test_host_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """reference/zookeeper 7: the host name as it is, an FQDN stays one."""
    monkeypatch.setattr(socket, "gethostname", lambda: "nl01.example.com")
    assert Place(monkeypatch).component.hostname == "nl01.example.com"


def test_removed(place: Place) -> None:
    place.entry.remove()
    assert place.calls == ["unregister"]


def test_sees_itself(place: Place) -> None:
    """A-17: an entry that is not seen for long is written once more."""
    assert not any(place.entry.sees_all(["me"]) for _ in range(LOOKS_FOR_ITSELF))
    assert place.calls == ["rewrite"]
    place.registered = ["me"]
    assert place.entry.sees_all(["me"])


def test_waits_for_siblings(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A-15, A-17: a sibling that does not register does not stop the others for ever."""
    clock: ManualClock = monotonic_clock(monkeypatch, entry_module)
    place.registered = ["me"]
    place.entry.new_session()
    looks = 0
    while not place.entry.sees_all(["me", "sibling"]):
        clock.pass_seconds(SIBLINGS_LOOK_SECONDS)
        looks += 1
    assert looks == pytest.approx(SIBLINGS_SECONDS / SIBLINGS_LOOK_SECONDS, abs=1)
    assert place.entry.sees_all(["me", "sibling"]), "waited for once"
    place.entry.new_session()
    place.registered = ["me", "sibling"]
    assert place.entry.sees_all(["me", "sibling"])
