# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from nodepool.compat.modules import ProviderManager, get_provider
from nodepool.driver.fake.provider import FakeProvider
from nodepool.driver.registry import Drivers
from nodepool.testing.memory_zk import MemoryZooKeeper


def section(name: str, **keys: Any) -> Any:
    pools = [{"name": "main", "labels": [{"name": "small"}]}]
    made = Drivers.get("fake").getProviderConfig({"name": name, "driver": "fake", "pools": pools, **keys})
    made.load(SimpleNamespace(labels={"small": SimpleNamespace(pools=[])}, diskimages={}))  # type: ignore[arg-type]
    return made


@pytest.fixture
def config() -> Any:
    """Two providers."""
    return SimpleNamespace(providers={"a": section("a"), "b": section("b")})


def test_get_provider() -> None:
    assert isinstance(get_provider(section("a")), FakeProvider)


def test_reconfigure(config: Any) -> None:
    zk: Any = MemoryZooKeeper()
    ProviderManager.reconfigure(None, config, zk)
    before = dict(config.provider_managers)
    assert sorted(before) == ["a", "b"]
    assert before["a"].zk is zk
    changed = SimpleNamespace(providers={"a": section("a"), "b": section("b", priority=7)})
    ProviderManager.reconfigure(config, changed, zk)
    after: Any = changed.provider_managers
    assert after["a"] is before["a"]
    assert after["b"] is not before["b"]
    ProviderManager.stopProviders(changed)


def test_only_those_with_images(config: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sections = type(config.providers["b"])
    monkeypatch.setattr(sections, "manage_images", property(lambda provider: provider.name == "a"))
    ProviderManager.reconfigure(None, config, MemoryZooKeeper(), only_image_manager=True)
    assert list(config.provider_managers) == ["a"]
    ProviderManager.stopProviders(config)
