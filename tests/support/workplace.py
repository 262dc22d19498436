# SPDX-License-Identifier: Apache-2.0
"""One test's corner of the world: its chroot, its configuration files, its launcher processes."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.support.launcher import LauncherProcess
from tests.support.launcher_config import FakeProvider, Provider, StaticProvider, write_config
from tests.support.pool_znodes import PoolZnodes
from tests.support.wait import wait_for
from tests.support.zookeeper import ZooKeeperServer

#: The released launcher imports for long where many programs run.
START_SECONDS = 180.0


class Workplace:
    """Starts launchers and knows when they are ready. The ``workplace`` fixture makes it and ends everything."""

    def __init__(self, directory: Path, zookeeper: ZooKeeperServer, chroot: str, znodes: PoolZnodes) -> None:
        self.directory = directory
        self.zookeeper = zookeeper
        self.chroot = chroot
        self.znodes = znodes
        self.launchers: list[LauncherProcess] = []

    def launch(
        self,
        providers: StaticProvider | FakeProvider | Iterable[Provider],
        *,
        wait: bool = True,
        session_seconds: float = 10.0,
        labels: Mapping[str, Mapping[str, Any]] | None = None,
        extra: Mapping[str, Any] | None = None,
        command: Sequence[str] | None = None,
        debug: bool = True,
        web: bool = False,
    ) -> LauncherProcess:
        """Writes a configuration and starts a launcher with it.

        :param wait: block until its pools are registered and all hosts of ``providers`` have their nodes.
        :param session_seconds: ZooKeeper session timeout of the launcher.
        :param labels: settings of labels, ``extra`` other top-level keys.
        :param debug: log everything; for measurements it is off.
        :param web: the launcher serves web pages, where ``extra`` says.
        """
        providers = [providers] if isinstance(providers, StaticProvider | FakeProvider) else list(providers)
        number = len(self.launchers) + 1
        config = self.directory / f"nodepool{number}.yaml"
        settings = {"session_seconds": session_seconds, "labels": labels, "extra": extra}
        write_config(config, self.zookeeper, self.chroot, providers, **settings)  # type: ignore[arg-type]
        launcher = LauncherProcess(config, self.directory / f"launcher{number}.log", command, debug=debug, web=web)
        pools = len(self.znodes.pools())
        self.launchers.append(launcher)
        launcher.start()
        if wait:
            self.wait_registered(launcher, pools + len(providers))
            for provider in providers:
                self.wait_nodes(provider)
        return launcher

    def wait_registered(self, launcher: LauncherProcess, pools: int) -> None:
        """Blocks until ``pools`` pools are registered and serve."""

        def registered() -> bool:
            if not launcher.running:
                raise RuntimeError(f"the launcher ended:\n{launcher.log_text()[-4000:]}")
            return [pool.get("state") for pool in self.znodes.pools()].count("running") >= pools

        wait_for(f"{pools} registered pools", registered, START_SECONDS)

    def wait_nodes(self, provider: Provider) -> None:
        """Blocks until each slot of a provider has exactly one node, ready and free, and nothing else is there."""

        def complete() -> bool:
            nodes = [node for node in self.znodes.nodes().values() if node.get("provider") == provider.name]
            free = [node for node in self.znodes.free_nodes().values() if node.get("provider") == provider.name]
            assert len(free) == len(nodes) == provider.slots, f"{len(free)} free of {len(nodes)} of {provider.slots}"
            return True

        wait_for(f"all nodes of {provider.name} are free", complete)

    def stop(self) -> None:
        """Ends every launcher."""
        for launcher in self.launchers:
            if launcher.running:
                launcher.stop(signal.SIGTERM)
