# SPDX-License-Identifier: Apache-2.0
"""`Site`: a launcher made from YAML, a simulated cloud over HTTP, a real ZooKeeper, and a client of Zuul's kind."""

from __future__ import annotations

import contextlib
import copy
import io
import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from nodepool.cmd.cli import main
from tests.clouds.process import LauncherInProcess
from tests.support.clouds import SimulatedCloud
from tests.support.local_launcher import LocalLauncher
from tests.support.logging_state import kept_logging
from tests.support.pool_znodes import NODES, PoolZnodes
from tests.support.virtual_clock import VirtualClock
from tests.support.wait import wait_for
from tests.support.zookeeper import ZooKeeperServer

Json = dict[str, Any]


class Site:
    """Change ``section``, call `launch`, ask for nodes with `submit`.

    :ivar section: of the provider.
    :ivar others: sections of more providers.
    """

    def __init__(
        self,
        directory: Path,
        zookeeper: ZooKeeperServer,
        chroot: str,
        znodes: PoolZnodes,
        cloud: SimulatedCloud,
        clock: VirtualClock,
    ) -> None:
        self._directory = directory
        self._zookeeper = zookeeper
        self._chroot = chroot
        self._numbers = itertools.count(1)
        self.znodes = znodes
        self.cloud = cloud
        self.clock = clock
        self.section: Json = cloud.section()
        if cloud.scanned:
            # Which has tests of its own.
            self.pool["host-key-checking"] = False
        self.others: list[Json] = []
        self.labels: dict[str, Json] = {}
        self.diskimages: list[Json] = []
        self.launchers: list[LocalLauncher] = []
        self._processes: list[LauncherInProcess] = []

    @property
    def pool(self) -> Json:
        found: Json = self.section["pools"][0]
        return found

    @property
    def label(self) -> Json:
        found: Json = self.pool["labels"][0]
        return found

    # -- the launcher

    def settings(self) -> Json:
        providers = [self.section, *self.others]
        names = {label["name"] for section in providers for pool in section["pools"] for label in pool["labels"]}
        labels = [{"name": name, **self.labels.get(name, {})} for name in sorted(names)]
        return copy.deepcopy({"labels": labels, "diskimages": self.diskimages, "providers": providers})

    def launch(self) -> LocalLauncher:
        """Starts a launcher with the configuration as it is now."""
        file = self._directory / f"nodepool{next(self._numbers)}.yaml"
        launcher = LocalLauncher(file, self._zookeeper, self._chroot, self.settings())
        launcher.start()
        self.launchers.append(launcher)
        return launcher

    def launch_process(self, session_seconds: float) -> LauncherInProcess:
        """Starts a launcher that can be killed. It goes by the time of the machine.

        :param session_seconds: when it is dead, ZooKeeper knows that after so long.
        """
        file = self._directory / f"nodepool{next(self._numbers)}.yaml"
        settings = {**self.settings(), "zookeeper-timeout": session_seconds}
        LocalLauncher(file, self._zookeeper, self._chroot, settings)
        launcher = LauncherInProcess(file)
        self._processes.append(launcher)
        launcher.start()
        return launcher

    def rewrite(self) -> None:
        """The running launcher gets the configuration as it is now."""
        self.launchers[-1].write(self.settings())

    def stop(self) -> None:
        """Stops all launchers in order."""
        while self.launchers:
            self.launchers.pop().stop()
        while self._processes:
            self._processes.pop().kill()

    # -- requests

    def submit(self, count: int = 1, label: str = "small", **fields: Any) -> str:
        """A request for some nodes; returns its id."""
        return self.znodes.submit([label] * count, **fields)

    def nodes_of(self, request: str) -> dict[str, Json]:
        """The nodes of a request that was fulfilled, by id."""
        names = (self.znodes.request(request) or {})["nodes"]
        return {name: node for name in names if (node := self.znodes.node(name))}

    def state(self, request: str) -> str | None:
        return self.znodes.request_state(request)

    def paused(self) -> dict[str, bool]:
        """What the registry has of each provider's pool."""
        return {pool["provider_name"]: pool["paused"] for pool in self.znodes.pools()}

    def fulfilled(self, *requests: str, hurry: float = 0.0) -> dict[str, Json]:
        """Waits for them; returns their nodes by id."""
        self._end(requests, "fulfilled", hurry)
        return {name: node for request in requests for name, node in self.nodes_of(request).items()}

    def failed(self, *requests: str, hurry: float = 0.0) -> None:
        """Waits until they have failed."""
        self._end(requests, "failed", hurry)

    def _end(self, requests: Sequence[str], wanted: str, hurry: float) -> None:
        def over() -> bool:
            states = [self.state(request) for request in requests]
            if {"fulfilled", "failed"} & set(states) - {wanted}:
                raise RuntimeError(f"they are {states}")
            assert set(states) == {wanted}, f"they are {states}"
            return True

        self.wait(f"all are {wanted}", over, hurry)

    def use(self, node_id: str) -> None:
        """What a client does when a job begins: it takes the lock, and keeps it."""
        self.znodes.kazoo.create(f"{NODES}/{node_id}/lock/held__lock__", ephemeral=True, sequence=True, makepath=True)
        self.znodes.change_node(node_id, state="in-use")

    def release(self, node_id: str) -> None:
        """It gives the lock back."""
        for name in self.znodes.node_lockers(node_id):
            self.znodes.kazoo.delete(f"{NODES}/{node_id}/lock/{name}")

    def give_back(self, *requests: str) -> None:
        """What a client does when its job is over."""
        for request in requests:
            self.znodes.use_and_return(request)

    def serve_all(self, requests: Sequence[str], hurry: float = 0.0) -> None:
        """Each is given back as soon as it has its nodes; none may fail."""
        waiting = list(requests)

        def served() -> bool:
            for request in list(waiting):
                state = self.state(request)
                if state == "failed":
                    raise RuntimeError(f"{request} failed")
                if state == "fulfilled":
                    self.give_back(request)
                    waiting.remove(request)
            assert not waiting, f"{len(waiting)} wait"
            return True

        self.wait("all are served", served, hurry)

    @contextlib.contextmanager
    def served(
        self, count: int = 1, label: str = "small", hurry: float = 0.0, end_hurry: float = 0.0
    ) -> Iterator[tuple[tuple[str, Json], ...]]:
        """A new launcher serves so many requests; inside, their nodes are there, by id. They are given back then, and
        nothing is left.
        """
        self.launch()
        requests = [self.submit(label=label) for _ in range(count)]
        yield tuple(self.fulfilled(*requests, hurry=hurry).items())
        self.give_back(*requests)
        self.wait_empty(end_hurry)

    def run(self, count: int, hurry: float = 0.0, end_hurry: float = 0.0) -> None:
        """A new launcher serves so many requests, each of which is given back at once; nothing is left."""
        self.launch()
        self.serve_all([self.submit() for _ in range(count)], hurry)
        self.wait_empty(end_hurry)

    def wait_empty(self, hurry: float = 0.0) -> None:
        """Waits until nothing is left in the cloud, and no node in ZooKeeper."""

        def empty() -> bool:
            left = self.cloud.left()
            assert not left, f"left in the cloud: {left}"
            assert not self.znodes.nodes(), f"left in ZooKeeper: {self.znodes.nodes()}"
            return True

        self.wait("nothing is left", empty, hurry)

    def wait(self, what: str, look: Callable[[], object], hurry: float = 0.0) -> None:
        """As `wait_for`. :param hurry: by how many seconds the clock leaps at a tick, for what takes long."""
        with self.clock.hurrying(hurry):
            wait_for(what, look)

    def command(self, *arguments: str) -> str:
        """What ``nodepool`` writes, with the configuration of the latest launcher."""
        out = io.StringIO()
        with kept_logging(), contextlib.redirect_stdout(out):
            main(["-c", str(self.launchers[-1].path), *arguments])
        return out.getvalue()
