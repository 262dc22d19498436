# SPDX-License-Identifier: Apache-2.0
"""Providers over configuration reloads (rules G-4 to G-11)."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterator
from typing import Any
from unittest.mock import create_autospec

import pytest

from nodepool.driver.framework.sections import UnavailableProviderConfig
from nodepool.driver.interface import Provider
from nodepool.driver.registry import Drivers
from nodepool.driver.static.config import StaticProviderConfig
from nodepool.exceptions import ConfigError
from nodepool.plan.retries import Backoff
from nodepool.runtime.providers import Providers, ProviderStart
from tests.support.wait import DEADLINE_SECONDS, wait_for


class Driver:
    """Makes providers that note what is called; a section says what goes wrong."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        #: What hangs does so until this is set.
        self.released = threading.Event()

    def getProvider(self, config: Any) -> Any:
        if config.provider.get("wrong"):
            return object()
        provider = create_autospec(Provider, instance=True)
        provider.provider = config
        provider.name = config.name
        for name in ("start", "idle", "stop", "join"):
            getattr(provider, name).side_effect = self._note(config, name)
        return provider

    def _note(self, config: Any, name: str) -> Any:
        def call(*_: object) -> None:
            self.calls.append(f"{config.name}{config.priority or ''}.{name}")
            if config.provider.get("hangs") == name:
                self.released.wait(DEADLINE_SECONDS)
            if config.provider.get("fails") == name:
                raise RuntimeError(f"{name} fails")
            if config.provider.get("exits") == name:
                sys.exit(f"{name} exits")

        return call


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    made = Driver()
    monkeypatch.setattr(Drivers, "get", lambda name: made)
    yield made
    made.released.set()


@pytest.fixture
def providers() -> Providers:
    zk: Any = object()
    return Providers(zk)


def configs(**sections: Any) -> dict[str, Any]:
    return {name: StaticProviderConfig({"name": name, **section}) for name, section in sections.items()}


def test_only_what_changed(providers: Providers, driver: Driver) -> None:
    """G-4, G-5, G-6: equal ones stay; changed: old idle, new start, old stop; removed: stopped."""
    providers.apply(configs(a={}, b={"priority": 1}, c={}))
    kept = providers.running["a"]
    driver.calls.clear()
    providers.apply(configs(a={}, b={"priority": 2}, d={}))
    assert providers.running["a"] is kept
    assert set(providers.running) == {"a", "b", "d"}
    assert [call for call in driver.calls if call[0] == "b"] == ["b1.idle", "b2.start", "b1.idle", "b1.stop"]
    assert [call for call in driver.calls if call[0] == "c"] == ["c.idle", "c.stop"]
    assert [call for call in driver.calls if call[0] == "d"] == ["d.start"]


def test_sections_that_cannot_be_compared(
    providers: Providers, driver: Driver, caplog: pytest.LogCaptureFixture
) -> None:
    """G-5, G-8: a driver whose classes raise there is started anew, and the others follow their sections."""

    class Odd(StaticProviderConfig):
        __hash__ = None  # type: ignore[assignment]

        def __eq__(self, other: object) -> bool:
            raise AttributeError("no pools")

    providers.apply({"a": Odd({"name": "a", "priority": 1})})
    driver.calls.clear()
    providers.apply({"a": Odd({"name": "a", "priority": 2}), **configs(b={})})
    assert driver.calls == ["b.start", "a1.idle", "a2.start", "a1.idle", "a1.stop"]
    assert "Provider a: its sections cannot be compared, it is started anew" in caplog.text


def test_broken_one_stops_nothing_else(providers: Providers, driver: Driver) -> None:
    """G-9: it is absent, the others start."""
    providers.apply(configs(a={"fails": "start"}, b={}, c={"fails": "idle"}))
    assert set(providers.running) == {"b", "c"}
    (absent,) = providers.absent.values()
    assert (absent.name, absent.driver, absent.text) == ("a", "openstack", "start fails")
    assert absent.next == pytest.approx(absent.since + 5, abs=0.01)
    providers.apply(configs(b={}))
    assert providers.absent == {}
    assert driver.calls[-2:] == ["c.idle", "c.stop"]


def test_no_more_threads(
    providers: Providers, driver: Driver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """G-5, G-9: the machine has no room for another thread: every provider is started when there is one again."""
    providers.apply(configs(a={"priority": 1}))

    def no_thread(thread: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("nodepool.runtime.providers.RETRY", Backoff(0.0, 0.0))
    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", no_thread)
        providers.apply(configs(a={"priority": 2}, b={}))
    assert not providers.running
    assert set(providers.absent) == {"a", "b"}
    assert driver.calls.count("a1.stop") == 1
    assert "can't start new thread" in caplog.text
    providers.retry_failed()
    assert {name: provider.provider.priority for name, provider in providers.running.items()} == {"a": 2, "b": None}
    assert providers.absent == {}
    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", no_thread)
        providers.stop(1.0)
    assert {"a2.stop", "a2.join", "b.stop", "b.join"} <= set(driver.calls)


def test_configuration_that_cannot_work(
    providers: Providers, driver: Driver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """G-9: what a user can mend is told in one line, with the name of the provider and no traceback."""

    def refuse(config: Any) -> Any:
        raise ConfigError("there is no clouds.yaml; write one")

    monkeypatch.setattr(driver, "getProvider", refuse)
    providers.apply(configs(one={}))
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    text = "Provider one cannot be started, trying again in 5 s: there is no clouds.yaml; write one"
    assert (record.getMessage(), record.exc_info) == (text, None)


def test_wrong_object(providers: Providers, driver: Driver, caplog: pytest.LogCaptureFixture) -> None:
    """A driver that gives something else than a provider."""
    providers.apply(configs(a={"wrong": True}, b={}))
    assert set(providers.running) == {"b"}
    assert "driver 'openstack': getProvider() must return a Provider, not object" in caplog.text


def test_driver_that_is_not_installed(providers: Providers, driver: Driver, caplog: pytest.LogCaptureFixture) -> None:
    """A clear line without a traceback, no retries, and the others start."""
    section = UnavailableProviderConfig({"name": "cloud"}, "the driver 'x' is not part of this installation")
    providers.apply({"cloud": section, **configs(b={})})
    assert set(providers.running) == {"b"}
    (record,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert record.getMessage() == "Provider cloud is not served: the driver 'x' is not part of this installation"
    assert record.exc_info is None
    absent = providers.absent["cloud"]
    assert (absent.text, absent.next) == ("the driver 'x' is not part of this installation", None)
    caplog.clear()
    providers.retry_failed()
    assert caplog.records == []


def test_driver_that_is_not_installed_any_more(providers: Providers, driver: Driver) -> None:
    """The provider that ran under the name ends."""
    providers.apply(configs(a={}))
    providers.apply({"a": UnavailableProviderConfig({"name": "a"}, "gone")})
    assert dict(providers.running) == {}
    assert driver.calls[-2:] == ["a.idle", "a.stop"]


def test_stop(providers: Providers, driver: Driver) -> None:
    """All are stopped, then joined, whatever one of them does."""
    providers.apply(configs(a={"fails": "stop"}, b={"fails": "join"}))
    driver.calls.clear()
    providers.stop(10)
    assert driver.calls[:2] == ["a.stop", "b.stop"]
    assert set(driver.calls[2:]) == {"a.join", "b.join"}
    assert dict(providers.running) == {}


@pytest.mark.parametrize("how", ["fails", "exits"])
def test_start_that_fails_half_way(
    providers: Providers, driver: Driver, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """G-9: what it has started already is stopped, so that attempts do not pile up threads; then it is tried again."""
    monkeypatch.setattr("nodepool.runtime.providers.RETRY", Backoff(0.0, 0.0))
    section: dict[str, Any] = {how: "start"}
    providers.apply(configs(a=section))
    assert driver.calls == ["a.start", "a.stop"]
    providers.retry_failed()
    assert driver.calls == ["a.start", "a.stop"] * 2
    assert dict(providers.running) == {}


def test_start_that_failed_very_often(
    providers: Providers, driver: Driver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """G-9: a provider that cannot start for days stops neither the main loop nor the other providers."""
    section: dict[str, Any] = {"fails": "start"}
    providers.apply(configs(a=section))
    providers._failed["a"] = (9_999, 0.0)
    providers.retry_failed()
    assert providers._failed["a"][0] == 10_000
    assert "Provider a cannot be started, trying again in 60 s" in caplog.text


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who hangs is not waited for."""
    monkeypatch.setattr("nodepool.runtime.providers.PATIENCE_SECONDS", 0.2)
    monkeypatch.setattr("nodepool.runtime.providers.LEAST_START_SECONDS", 0.2)
    monkeypatch.setattr("nodepool.runtime.providers.RETRY", Backoff(0.0, 0.0))


def take_starts(providers: Providers, *names: str) -> None:
    """Turns of the main loop until these providers run."""

    def run() -> bool:
        providers.retry_failed()
        return set(providers.running) == set(names)

    wait_for(f"{names} run", run)


@pytest.mark.usefixtures("impatient")
def test_start_that_hangs(providers: Providers, driver: Driver, caplog: pytest.LogCaptureFixture) -> None:
    """G-9: it is absent and not begun again; the others are served; it is there when it has started at last."""
    providers.apply(configs(a={"hangs": "start"}, b={}))
    take_starts(providers, "b")
    assert "Provider a: start() has not returned yet" in caplog.text
    assert providers.absent["a"].text == "its start has not ended yet"
    providers.retry_failed()
    driver.released.set()
    take_starts(providers, "a", "b")
    assert driver.calls.count("a.start") == 1
    assert "a.stop" not in driver.calls
    assert providers.absent == {}


@pytest.mark.usefixtures("impatient")
def test_start_that_hangs_and_fails(providers: Providers, driver: Driver) -> None:
    """G-9: it is tried again."""
    section = {"hangs": "start", "fails": "start"}
    providers.apply(configs(a=section))
    wait_for("it hangs", lambda: driver.calls == ["a.start"])
    driver.released.set()

    def tried_again() -> bool:
        providers.retry_failed()
        return driver.calls[:4] == ["a.start", "a.stop"] * 2

    since = providers.absent["a"].since
    wait_for("it is tried again", tried_again)
    assert providers.absent["a"].since == since


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("what", ["changed", "removed", "stopped"])
def test_start_that_nobody_waits_for(providers: Providers, driver: Driver, what: str) -> None:
    """G-5: when it has started at last, it is stopped."""
    providers.apply(configs(a={"priority": 1}))
    take_starts(providers, "a")
    providers.apply(configs(a={"priority": 2, "hangs": "start"}))
    assert providers.running == {}
    wait_for("the successor hangs", lambda: "a2.start" in driver.calls)
    wait_for("the one before is stopped", lambda: "a1.stop" in driver.calls)
    if what == "changed":
        providers.apply(configs(a={"priority": 3}))
        take_starts(providers, "a")
    elif what == "removed":
        providers.apply({})
    else:
        providers.stop(1)
    driver.released.set()
    wait_for("the one that hung is stopped", lambda: "a2.stop" in driver.calls)
    providers.retry_failed()
    assert set(providers.running) == ({"a"} if what == "changed" else set())
    assert "a3.stop" not in driver.calls


def test_nobody_wants_it_any_more_and_its_end_hangs(driver: Driver) -> None:
    """G-5: it had started just before it was forgotten; the main thread does not hang with it."""
    (config,) = configs(a={"hangs": "stop"}).values()
    zk: Any = object()
    start = ProviderStart(config, zk)
    assert start.wait(DEADLINE_SECONDS)
    start.forget()
    wait_for("it is being stopped", lambda: driver.calls == ["a.start", "a.stop"])
    assert not driver.released.is_set(), "forget() has returned, stop() has not"
    driver.released.set()
    wait_for("it has ended", lambda: not any(thread.name == "Stop-a" for thread in threading.enumerate()))


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("what", ["idle", "stop"])
def test_end_that_hangs(providers: Providers, driver: Driver, what: str) -> None:
    """G-5: the successor serves all the same."""
    providers.apply(configs(a={"hangs": what}, b={}))
    take_starts(providers, "a", "b")
    old = providers.running["a"]
    providers.apply(configs(a={"priority": 1}, b={}))
    take_starts(providers, "a", "b")
    assert providers.running["a"] is not old
