# SPDX-License-Identifier: Apache-2.0
"""Workers by their single pass, with the fake driver and a real ZooKeeper."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import pytest
from kazoo.recipe.lock import Lock

from nodepool.driver.fake.cloud import FakeCloud
from nodepool.runtime.worker import Worker
from tests.support.local_launcher import fake_provider, launcher_settings
from tests.support.manual_clock import ManualClock
from tests.support.pool_znodes import PoolZnodes
from tests.support.still_launcher import StillLauncher
from tests.support.zookeeper import ZooKeeperServer

Still = Callable[..., StillLauncher]
Patch = pytest.MonkeyPatch
Log = pytest.LogCaptureFixture


def home(of: Any) -> ModuleType:
    """The module of a class or function, where its constants are."""
    return sys.modules[of.__module__]


class Passes:
    """A worker of a launcher, whose passes the test makes, and its clock."""

    def __init__(self, launcher: StillLauncher, znodes: PoolZnodes, worker: Worker, clock: ManualClock) -> None:
        self.launcher, self.znodes, self.clock = launcher, znodes, clock
        self.pass_once = worker.run_once

    def run(self, later: float = 0.0) -> float:
        """Makes a pass, a while later; the seconds until the next one."""
        self.clock.pass_seconds(later)
        self.launcher.settle()
        return self.pass_once() or 0.0


@contextmanager
def locked(znodes: PoolZnodes, *paths: str) -> Iterator[None]:
    """Another client holds these locks, such as ``nodes/0000000001/lock``."""
    with ExitStack() as held:
        for path in paths:
            held.enter_context(Lock(znodes.kazoo, f"/nodepool/{path}"))
        yield


class Records(dict[str, Any]):
    """A cache that the test fills."""

    def __init__(self) -> None:
        self.locked: set[str] = set()
        self.empty: set[str] = set()
        self.is_locked, self.is_empty = self.locked.__contains__, self.empty.__contains__
        self.listeners: list[Callable[..., None]] = []
        self.add_listener, self.remove_listener = self.listeners.append, self.listeners.remove

    def is_left(self, record_id: str) -> bool:
        return record_id not in self.locked

    def tell(self, *key: str) -> None:
        for listener in self.listeners:
            listener(*key)

    def ids(self) -> list[str]:
        return list(self)


def raising(error: BaseException) -> Callable[..., NoReturn]:
    """A method of something that does not work."""

    def method(*_: object, **__: object) -> NoReturn:
        raise error

    return method


@pytest.fixture
def still(tmp_path: Path, zookeeper: ZooKeeperServer, chroot: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Still]:
    """Makes launchers without threads: ``still(providers, labels={name: settings}, **top_level)``."""
    launchers: list[StillLauncher] = []

    def make(
        providers: list[dict[str, Any]], labels: dict[str, dict[str, Any]] | None = None, **extra: Any
    ) -> StillLauncher:
        path = tmp_path / f"still{len(launchers) + 1}.yaml"
        settings = launcher_settings(providers, labels, extra)
        launchers.append(StillLauncher(path, zookeeper, chroot, settings, monkeypatch))
        return launchers[-1]

    yield make
    for launcher in launchers:
        launcher.stop()


@pytest.fixture
def launcher(still: Still, cloud_name: str, cloud: FakeCloud) -> StillLauncher:
    """With the pool ``main`` of a provider ``one``."""
    return still([fake_provider("one", cloud=cloud_name)])
