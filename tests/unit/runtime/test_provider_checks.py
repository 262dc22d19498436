# SPDX-License-Identifier: Apache-2.0
"""Providers of any driver are checked beside each other, and none is started."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from nodepool.driver.framework.checks import CheckResult
from nodepool.driver.framework.sections import UnavailableProviderConfig
from nodepool.driver.interface import Provider
from nodepool.runtime import providers
from nodepool.runtime.providers import check_providers

GOOD = CheckResult("cloud", True, "login works")


class Site:
    """Drivers whose providers do what the test says."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.go_on = threading.Event()
        self.preflights: dict[str, Callable[[Provider], Any]] = {}
        self.trouble: Exception | None = None

    def config(self, name: str) -> Any:
        return SimpleNamespace(name=name, driver=SimpleNamespace(name="odd"))

    def getProvider(self, config: Any) -> Any:
        if self.trouble is not None:
            raise self.trouble
        bodies: dict[str, Any] = dict.fromkeys(Provider.__abstractmethods__, lambda *_: None)
        bodies["start"] = lambda *_: self.calls.append("start")
        bodies["stop"] = lambda provider: self.calls.append(f"stop with zk {provider.zk}")
        if config.name in self.preflights:
            bodies["preflight"] = self.preflights[config.name]
        made = type("OddProvider", (Provider,), bodies)()
        made.name, made.provider = config.name, config
        return made

    def check(self, *names: str, zk: Any = None, limit: float = 60.0) -> dict[str, list[CheckResult]]:
        return check_providers([self.config(name) for name in names], zk, limit)


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    site = Site()
    drivers = SimpleNamespace(get={"odd": site}.__getitem__, is_extra=lambda name: False)
    monkeypatch.setattr(providers, "Drivers", drivers)
    monkeypatch.setattr(providers, "Drivers", drivers)
    yield site
    site.go_on.set()


def test_results(site: Site) -> None:
    """A generator is read to its end; ZooKeeper is there meanwhile; the provider is never started."""
    seen: list[Any] = []

    def look(provider: Provider) -> Iterator[CheckResult]:
        seen.append(provider.zk)
        yield GOOD
        yield CheckResult("label small", False, "no flavor")

    site.preflights["cloud"] = look
    zk = object()
    found = site.check("cloud", zk=zk)
    assert [result.subject for result in found["cloud"]] == ["cloud", "label small"]
    assert seen == [zk]
    assert site.calls == ["stop with zk None"]


def test_driver_without_checks(site: Site) -> None:
    """As all that were written for 11.0.0: nothing of it is called."""
    (result,) = site.check("plain")["plain"]
    assert (result.status, result.text) == ("ok", "the section is in order; the driver odd has no live checks")
    assert site.calls == []
    site.preflights["empty"] = lambda provider: ()
    assert "no live checks" in site.check("empty")["empty"][0].text


def test_driver_that_fails(site: Site) -> None:
    """Its error is the result, and the others are checked."""

    def fail(provider: Provider) -> Iterator[CheckResult]:
        yield GOOD
        raise OSError("the library is broken; install another one")

    site.preflights |= {"bad": fail, "good": lambda provider: [GOOD]}
    found = site.check("bad", "good")
    assert found["bad"] == [CheckResult("provider bad", False, "the library is broken", "install another one")]
    assert found["good"] == [GOOD]
    assert len(site.calls) == 2
    site.trouble = ValueError("no clouds.yaml")
    assert site.check("good")["good"] == [CheckResult("provider good", False, "no clouds.yaml")]


def test_driver_that_hangs(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is given up; the process need not wait for its thread."""
    site.preflights |= {"mute": lambda provider: [site.go_on.wait(30)], "good": lambda provider: [GOOD]}
    # At the beginning, while the good one is waited for, and then.
    monkeypatch.setattr(providers, "monotonic", iter([0.0, 0.0, 60.0]).__next__)
    found = site.check("good", "mute", limit=60.0)
    assert found["good"] == [GOOD]
    assert found["mute"][0].text == "its check has not ended within 60 s"
    (thread,) = [thread for thread in threading.enumerate() if thread.name == "Check-mute"]
    assert thread.daemon
    site.go_on.set()
    thread.join(30)


def test_section_that_cannot_be_used() -> None:
    config = UnavailableProviderConfig({"name": "bad", "driver": "static"}, "f.yaml:3: no such label; correct it")
    assert check_providers([config], None) == {
        "bad": [CheckResult("provider bad", False, "f.yaml:3: no such label", "correct it")]
    }
