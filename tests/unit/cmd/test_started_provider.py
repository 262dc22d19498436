# SPDX-License-Identifier: Apache-2.0
"""A provider for one command is started as the launcher does it (reference/commands 2)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from nodepool.cmd.app import CommandError
from nodepool.cmd.session import started_provider, told_in_a_line
from nodepool.compat.released_zookeeper import ReleasedZooKeeper
from nodepool.config.objects import Config
from nodepool.driver.config import ProviderConfig
from nodepool.driver.interface import Provider
from nodepool.driver.registry import Drivers
from nodepool.zk.zookeeper import ZooKeeper


class OwnDriver:
    """A driver of a site, written for 11.0.0: its provider does not set its name."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.trouble: Exception | None = None
        self.config = Config()
        section = SimpleNamespace(name="cloud", driver=SimpleNamespace(name="own"))
        self.config.providers = {"cloud": cast(ProviderConfig, section)}
        self.zk = ZooKeeper(cast(Any, SimpleNamespace(connected=True)), None)

    def getProvider(self, config: Any) -> Provider:
        site = self

        def start(provider: Provider, zk: object) -> None:
            site.calls.append("start")
            if site.trouble is not None:
                raise site.trouble

        bodies: dict[str, Any] = dict.fromkeys(Provider.__abstractmethods__, lambda *_: None)
        for name in ("stop", "join"):
            bodies[name] = lambda provider, name=name: site.calls.append(name)
        kind: Any = type("OwnProvider", (Provider,), {**bodies, "start": start, "__init__": lambda self: None})
        made: Provider = kind()
        return made


@pytest.fixture
def own_driver(monkeypatch: pytest.MonkeyPatch) -> OwnDriver:
    made = OwnDriver()
    monkeypatch.setattr(Drivers, "get", lambda name: made)
    monkeypatch.setattr(Drivers, "is_extra", lambda name: True)
    return made


def test_driver_of_a_site(own_driver: OwnDriver) -> None:
    """It gets what drivers written for 11.0.0 get from the launcher, and is stopped in the end."""
    with started_provider(own_driver.zk, own_driver.config, "cloud") as provider:
        assert isinstance(provider.zk, ReleasedZooKeeper)
        assert (provider.name, provider.provider) == ("cloud", own_driver.config.providers["cloud"])
    assert own_driver.calls == ["start", "stop", "join"]


def test_start_that_fails(own_driver: OwnDriver) -> None:
    """What was started is stopped: its threads must not keep the command from ending."""
    own_driver.trouble = RuntimeError("no way")
    with (
        pytest.raises(CommandError, match="provider cloud cannot be started: no way"),
        started_provider(own_driver.zk, own_driver.config, "cloud"),
    ):
        raise AssertionError
    assert own_driver.calls == ["start", "stop"]


@pytest.mark.parametrize(
    ("error", "text"),
    [(RuntimeError("odd"), "no list: odd"), (KeyError(), "no list: KeyError"), (CommandError("well"), "well")],
)
def test_what_is_raised_is_told_in_a_line(error: Exception, text: str) -> None:
    with pytest.raises(CommandError) as told, told_in_a_line("no list"):
        raise error
    assert str(told.value) == text
