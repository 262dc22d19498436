# SPDX-License-Identifier: Apache-2.0
"""Providers over reloads of the configuration: they are started, stopped and checked (rules G-4 to G-11)."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import create_autospec

import pytest

from nodepool.compat.modules import ReleasedZooKeeper
from nodepool.driver.framework.sections import UnavailableProviderConfig
from nodepool.driver.interface import Provider
from nodepool.driver.registry import Drivers
from nodepool.driver.static.config import StaticProviderConfig
from nodepool.exceptions import ConfigError
from nodepool.plan.retries import Backoff
from nodepool.runtime.providers import Providers, start_now
from nodepool.zk.zookeeper import ZooKeeper
from tests.support.wait import DEADLINE_SECONDS, wait_for


class Driver:
    """Makes providers that note what is called; a section says what goes wrong."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        #: What hangs does so until this is set.
        self.released = threading.Event()

    def getProvider(self, config: Any) -> Any:
        if wrong := config.provider.get("wrong"):
            if isinstance(wrong, Exception):
                raise wrong
            return object()
        provider = create_autospec(Provider, instance=True)
        provider.provider, provider.name = config, config.provider.get("own-name", config.name)
        for name in ("start", "idle", "stop", "join", "preflight"):
            getattr(provider, name).side_effect = self._note(config, name)
        return provider

    def _note(self, config: Any, name: str) -> Any:
        section = config.provider

        def call(*_: object) -> Any:
            self.calls.append(f"{config.name}{config.priority or ''}.{name}")
            if section.get("hangs") == name:
                self.released.wait(DEADLINE_SECONDS)
            if section.get("fails") == name:
                raise OSError(f"{name} fails; mend it")
            if section.get("exits") == name:
                sys.exit(3)
            return section.get("finds", ())

        return call

    def of(self, name: str) -> list[str]:
        return [call.partition(".")[2] for call in self.calls if call.startswith(name)]


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    """Patience and pauses are short: who hangs is not waited for. They are constants, no arguments."""
    made = Driver()
    monkeypatch.setattr(Drivers, "get", lambda name: made)
    module = sys.modules[Providers.__module__]
    monkeypatch.setattr(module, "PATIENCE_SECONDS", 1.0)
    monkeypatch.setattr(module, "LEAST_START_SECONDS", 1.0)
    monkeypatch.setattr(module, "RETRY", Backoff(0.0, 0.0))
    yield made
    made.released.set()


@pytest.fixture
def providers() -> Providers:
    return Providers(cast(Any, object()))


def configs(**sections: Any) -> dict[str, Any]:
    return {name: StaticProviderConfig({"name": name, **section}) for name, section in sections.items()}


def turn(providers: Providers) -> bool:
    """Of the main loop."""
    providers.retry_failed()
    return True


def until(providers: Providers, *names: str) -> None:
    """Turns of the main loop until these providers run."""
    wait_for(f"{names} run", lambda: turn(providers) and set(providers.running) == set(names))


def test_sections_that_cannot_be_compared(providers: Providers, driver: Driver) -> None:
    """G-5, G-8: a driver whose classes raise there is started anew, and the others follow their sections."""

    class Odd(StaticProviderConfig):
        __hash__ = None  # type: ignore[assignment]

        def __eq__(self, other: object) -> bool:
            raise AttributeError("no pools")

    providers.apply({"a": Odd({"name": "a", "priority": 1})})
    until(providers, "a")
    providers.apply({"a": Odd({"name": "a", "priority": 2}), **configs(b={})})
    until(providers, "a", "b")
    assert [call for call in driver.calls if call[0] == "a"] == [
        "a1.start",
        "a1.idle",
        "a2.start",
        "a1.idle",
        "a1.stop",
    ]


REFUSED = ConfigError("there is no clouds.yaml; write one")


@pytest.mark.parametrize(
    ("section", "text", "calls"),
    [
        # What it has started already is stopped, so that attempts do not pile up threads.
        ({"fails": "start"}, "start fails; mend it", ["start", "stop"]),
        ({"exits": "start"}, "sys.exit(3)", ["start", "stop"]),
        ({"wrong": True}, "getProvider() must return a Provider, not object", []),
        ({"wrong": REFUSED}, "there is no clouds.yaml; write one", []),
    ],
)
def test_start_that_fails(
    providers: Providers, driver: Driver, caplog: pytest.LogCaptureFixture, section: Any, text: str, calls: list[str]
) -> None:
    """G-9: it is absent and tried again; the others run; what a user can mend has no traceback."""
    providers.apply(configs(a=section, b={}, c={"fails": "idle"}))
    wait_for("it has failed", lambda: turn(providers) and driver.of("a")[: 2 * len(calls)] == calls * 2)
    until(providers, "b", "c")
    (absent,) = providers.absent.values()
    assert (absent.name, text in absent.text, absent.next is not None) == ("a", True, True)
    records = [record for record in caplog.records if record.getMessage().startswith("Provider a cannot be started")]
    assert (records[0].exc_info is None) is isinstance(section.get("wrong"), ConfigError)
    providers.apply(configs(b={}))
    assert (providers.absent, driver.of("c")[-2:]) == ({}, ["idle", "stop"])


def test_driver_that_is_not_installed(providers: Providers, driver: Driver, caplog: pytest.LogCaptureFixture) -> None:
    """G-9: a clear line without a traceback, no retries; the others start; one that ran under the name ends."""
    providers.apply(configs(a={}))
    until(providers, "a")
    text = "the driver 'x' is not part of this installation"
    providers.apply({"a": UnavailableProviderConfig({"name": "a"}, text), **configs(b={})})
    until(providers, "b")
    # A machine that is busy may also say that a start takes long.
    (record,) = [record for record in caplog.records if "not served" in record.getMessage()]
    assert (record.getMessage(), record.exc_info) == (f"Provider a is not served: {text}", None)
    assert (providers.absent["a"].text, providers.absent["a"].next) == (text, None)
    assert driver.of("a")[-2:] == ["idle", "stop"]


def test_stop(providers: Providers, driver: Driver) -> None:
    """All are stopped, then joined, whatever one of them does."""
    providers.apply(configs(a={"fails": "stop"}, b={"fails": "join"}))
    until(providers, "a", "b")
    driver.calls.clear()
    providers.stop(10)
    assert driver.calls[:2] == ["a.stop", "b.stop"]
    assert (set(driver.calls[2:]), dict(providers.running)) == ({"a.join", "b.join"}, {})


@pytest.mark.parametrize("fails", [None, "start"])
def test_start_that_hangs(providers: Providers, driver: Driver, fails: str | None) -> None:
    """G-9: it is absent and not begun again; the others are served; it is there when it has started at last."""
    providers.apply(configs(a={"hangs": "start", "fails": fails}, b={}))
    until(providers, "b")
    since = providers.absent["a"].since
    assert (providers.absent["a"].text, driver.of("a")) == ("its start has not ended yet", ["start"])
    driver.released.set()
    if fails is None:
        until(providers, "a", "b")
        assert (driver.of("a"), providers.absent) == (["start"], {})
    else:
        again = ["start", "stop"] * 2
        wait_for("it is tried again", lambda: turn(providers) and driver.of("a")[:4] == again)
        assert providers.absent["a"].since == since


@pytest.mark.parametrize("what", ["changed", "removed", "stopped"])
def test_start_that_is_not_waited_for(providers: Providers, driver: Driver, what: str) -> None:
    """G-5: when it has started at last, it is stopped."""
    providers.apply(configs(a={"priority": 1}))
    until(providers, "a")
    providers.apply(configs(a={"priority": 2, "hangs": "start"}))
    assert providers.running == {}
    wait_for("the successor hangs", lambda: "a2.start" in driver.calls)
    wait_for("the one before is stopped", lambda: "a1.stop" in driver.calls)
    if what == "changed":
        providers.apply(configs(a={"priority": 3}))
        until(providers, "a")
    elif what == "removed":
        providers.apply({})
    else:
        providers.stop(1)
    driver.released.set()
    wait_for("the one that hung is stopped", lambda: "a2.stop" in driver.calls)
    providers.retry_failed()
    assert (set(providers.running), "a3.stop" in driver.calls) == ({"a"} if what == "changed" else set(), False)


@pytest.mark.parametrize("name", [None, "", "its own"])
def test_what_a_driver_forgot(driver: Driver, monkeypatch: pytest.MonkeyPatch, name: str | None) -> None:
    """C-3: a provider without a name would end every loop over them. An extra driver gets what 11.0.0 had."""
    zk = ZooKeeper(cast(Any, SimpleNamespace(connected=True)), None)
    for extra in (False, True):
        monkeypatch.setattr(Drivers, "is_extra", lambda driver, extra=extra: extra)
        (config,) = configs(cloud={"own-name": name}).values()
        provider: Any = start_now(config, zk)
        assert (provider.name, provider.provider) == (name or "cloud", config)
        assert isinstance(provider.zk, ReleasedZooKeeper) if extra else provider.zk is zk
