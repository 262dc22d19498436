# SPDX-License-Identifier: Apache-2.0
"""One attempt to start a provider: its end, what it raised, and that nothing of a start in vain stays (G-6)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from nodepool.compat.released_zookeeper import ReleasedZooKeeper
from nodepool.driver.config import ProviderConfig
from nodepool.driver.interface import Provider
from nodepool.runtime import providers
from nodepool.runtime.providers import ProviderStart
from nodepool.zk.zookeeper import ZooKeeper

SECONDS = 30.0


class Site:
    """A driver whose provider does what the test says."""

    def __init__(self) -> None:
        self.zk: Any = object()
        self.extra: set[str] = set()
        self.stopped = threading.Event()
        self.go_on = threading.Event()
        self.go_on.set()
        self.trouble: BaseException | None = None
        self.stop_trouble: Exception | None = None
        self.config = cast(ProviderConfig, SimpleNamespace(name="cloud", driver=SimpleNamespace(name="odd")))
        site = self

        def start(provider: Provider, zk: object) -> None:
            assert site.go_on.wait(SECONDS)
            if site.trouble is not None:
                raise site.trouble

        def stop(provider: Provider) -> None:
            site.stopped.set()
            if site.stop_trouble is not None:
                raise site.stop_trouble

        bodies = dict.fromkeys(Provider.__abstractmethods__, lambda *_: None)
        kind = type("OddProvider", (Provider,), {**bodies, "start": start, "stop": stop, "__init__": lambda self: None})
        self.make: Callable[[Any], Any] = lambda config: kind()

    def getProvider(self, config: Any) -> Any:
        return self.make(config)

    def begin(self) -> ProviderStart:
        return ProviderStart(self.config, self.zk)


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    site = Site()
    drivers = SimpleNamespace(get={"odd": site}.__getitem__, is_extra=site.extra.__contains__)
    monkeypatch.setattr(providers, "Drivers", drivers)
    yield site
    site.go_on.set()


def test_started(site: Site) -> None:
    start = site.begin()
    assert start.wait(SECONDS)
    assert start.result().zk is site.zk
    assert not site.stopped.is_set()


def test_facade_of_an_extra_driver(site: Site) -> None:
    """One that is not built-in may be written for 11.0.0: it gets what that release had."""
    site.zk = ZooKeeper(cast(Any, SimpleNamespace(connected=True)), None)
    site.extra.add("odd")
    start = site.begin()
    assert start.wait(SECONDS)
    zk = start.result().zk
    assert isinstance(zk, ReleasedZooKeeper)
    assert zk.connected
    assert zk.nodes is site.zk.nodes


def test_not_yet(site: Site) -> None:
    site.go_on.clear()
    start = site.begin()
    assert not start.wait(0.0)
    with pytest.raises(RuntimeError, match="still being started"):
        start.result()
    site.go_on.set()
    assert start.wait(SECONDS)


@pytest.mark.parametrize("stop_trouble", [None, RuntimeError("not complete")])
def test_start_that_fails(site: Site, stop_trouble: Exception | None) -> None:
    """What it has started already is stopped: there will be another attempt."""
    site.trouble, site.stop_trouble = KeyError("token"), stop_trouble
    start = site.begin()
    assert start.wait(SECONDS)
    with pytest.raises(KeyError, match="token"):
        start.result()
    assert site.stopped.is_set()


def test_driver_that_calls_exit(site: Site) -> None:
    site.trouble = SystemExit(3)
    start = site.begin()
    assert start.wait(SECONDS)
    with pytest.raises(RuntimeError, match=r"sys\.exit\(3\)"):
        start.result()


def test_driver_that_makes_something_else(site: Site) -> None:
    site.make = lambda config: object()
    start = site.begin()
    assert start.wait(SECONDS)
    with pytest.raises(Exception, match="getProvider"):
        start.result()
    assert not site.stopped.is_set()


def test_forgotten_while_it_starts(site: Site) -> None:
    """It cannot be ended; it is stopped as soon as it has started."""
    site.go_on.clear()
    start = site.begin()
    start.forget()
    assert not site.stopped.is_set()
    site.go_on.set()
    assert site.stopped.wait(SECONDS)


def test_forgotten_afterwards(site: Site) -> None:
    start = site.begin()
    assert start.wait(SECONDS)
    start.forget()
    assert site.stopped.wait(SECONDS)


@pytest.mark.parametrize("given", [None, "", "its own"])
def test_what_a_driver_forgot(site: Site, given: str | None) -> None:
    """C-3: a provider without a name, or without its configuration, would end every loop over the providers."""
    plain = site.make

    def make(config: Any) -> Any:
        provider = plain(config)
        if given is not None:
            provider.name = given
        return provider

    site.make = make
    start = site.begin()
    assert start.wait(SECONDS)
    provider = start.result()
    assert (provider.name, provider.provider) == (given or "cloud", site.config)
