# SPDX-License-Identifier: Apache-2.0
"""A launcher in a thread of the test, so that the test can turn the knobs of its fake clouds."""

from __future__ import annotations

import copy
import threading
from pathlib import Path
from typing import Any

import yaml

from nodepool.launcher.supervisor import NodePool
from tests.support.launcher_config import zookeeper_sections
from tests.support.wait import wait_for
from tests.support.zookeeper import ZooKeeperServer


class LocalLauncher:
    """One `NodePool` with a configuration that the test may change while it runs."""

    def __init__(self, path: Path, zookeeper: ZooKeeperServer, chroot: str, settings: dict[str, Any]) -> None:
        self.path = path
        # A machine that stands still for a while does not end the session.
        self._base = zookeeper_sections(zookeeper, chroot, 40.0)
        self.write(settings)
        self.nodepool = NodePool(str(path))
        self._thread = threading.Thread(target=self.nodepool.run, name=f"launcher-{path.stem}")

    def write(self, settings: dict[str, Any]) -> None:
        """Writes the configuration; a running launcher notices it within its next turn."""
        self.settings = copy.deepcopy(settings)
        self.path.write_text(yaml.safe_dump({**self._base, **settings}, sort_keys=False), encoding="utf-8")

    @property
    def running(self) -> bool:
        """Does its main thread run?"""
        return self._thread.is_alive()

    def start(self) -> None:
        """Starts; blocks until it serves."""
        self.nodepool.start()
        self._thread.start()
        wait_for("the launcher serves", self.nodepool.ready.is_set)

    def stop(self) -> None:
        """Stops in order; blocks until its threads have ended."""
        self.nodepool.stop()
        self._thread.join(30)
        assert not self.running, "the launcher did not stop"


def fake_provider(name: str = "cloud", labels: tuple[str, ...] = ("small",), **settings: Any) -> dict[str, Any]:
    """A provider section of the fake driver with one pool ``main``; the cloud has the provider's name.

    :param settings: keys of the provider with ``_`` for ``-``; those that start with ``pool_`` go to the pool.
    """
    pool: dict[str, Any] = {"name": "main", "labels": [{"name": label} for label in labels]}
    section: dict[str, Any] = {"name": name, "driver": "fake", "pools": [pool]}
    for key, value in settings.items():
        target = pool if key.startswith("pool_") else section
        target[key.removeprefix("pool_").replace("_", "-")] = value
    return section


def launcher_settings(
    providers: list[dict[str, Any]], labels: dict[str, dict[str, Any]] | None, extra: dict[str, Any]
) -> dict[str, Any]:
    """The configuration with these providers and all labels that they have.

    :param labels: settings of labels by name; also labels that no provider has.
    :param extra: other sections, with ``_`` for ``-``.
    """
    settings = dict(labels or {})
    for pool in (pool for provider in providers for pool in provider["pools"]):
        for label in [*pool.get("labels", []), *(name for node in pool.get("nodes", []) for name in node["labels"])]:
            settings.setdefault(label if isinstance(label, str) else label["name"], {})
    return {
        "labels": [{"name": name, **settings[name]} for name in sorted(settings)],
        "providers": providers,
        **{key.replace("_", "-"): value for key, value in extra.items()},
    }
