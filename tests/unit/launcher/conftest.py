# SPDX-License-Identifier: Apache-2.0
"""Workers by their single pass, with the fake driver and a real ZooKeeper."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.local_launcher import launcher_settings
from tests.support.still_launcher import StillLauncher
from tests.support.zookeeper import ZooKeeperServer

Still = Callable[..., StillLauncher]


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
