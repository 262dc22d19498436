# SPDX-License-Identifier: Apache-2.0
"""Where a scenario happens: one ZooKeeper for the whole run; for each case a chroot, launchers and a Zuul client."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.suite.progress import Progress
from benchmarks.support.candidates import Candidate
from benchmarks.support.counters import Reading, read_counters
from tests.support.launcher import LauncherProcess
from tests.support.launcher_config import Provider, StaticProvider
from tests.support.pool_znodes import PoolZnodes
from tests.support.wait import wait_for
from tests.support.workplace import Workplace
from tests.support.zookeeper import ZooKeeperServer
from tests.support.zuul_client import ZuulClient

KIB_PER_MIB = 1024


class Stage:
    """What all scenarios of a run share.

    :param zookeeper: runs, with fsync and TLS.
    :param keep: logs of launchers are copied there; None = they are removed.
    """

    def __init__(
        self, directory: Path, zookeeper: ZooKeeperServer, progress: Progress, keep: Path | None = None
    ) -> None:
        self.directory = directory
        self.zookeeper = zookeeper
        self.progress = progress
        self._keep = keep
        self._places = 0

    @contextmanager
    def place(self, candidate: Candidate) -> Iterator[Place]:
        """A place of its own for one candidate; everything in it ends with the block."""
        self._places += 1
        chroot = f"/{candidate.name}-{self._places}"
        root = PoolZnodes(self.zookeeper.plain_hosts())
        root.start()
        root.kazoo.ensure_path(chroot)
        root.stop()
        directory = Path(tempfile.mkdtemp(prefix=f"{candidate.name}-", dir=self.directory))
        place = Place(candidate, directory, self, chroot)
        place.start()
        try:
            yield place
        finally:
            place.stop()
            if self._keep is not None:
                self._keep.mkdir(parents=True, exist_ok=True)
                for log in directory.glob("*.log"):
                    shutil.copy(log, self._keep / f"{chroot.strip('/')}-{log.name}")


class Place:
    """A chroot, launchers of one candidate, the load, and an observer."""

    def __init__(self, candidate: Candidate, directory: Path, stage: Stage, chroot: str) -> None:
        self.candidate = candidate
        self.directory = directory
        self.zookeeper = stage.zookeeper
        self.progress = stage.progress
        self.znodes = PoolZnodes(self.zookeeper.plain_hosts(chroot))
        # Its cache of nodes would only cost: nothing here looks at it.
        self.client = ZuulClient(self.zookeeper.tls_hosts(chroot), self.zookeeper.certificates, node_cache=False)
        self.workplace = Workplace(directory, self.zookeeper, chroot, self.znodes)

    def start(self) -> None:
        self.znodes.start()
        self.client.start()

    def stop(self) -> None:
        self.client.stop()
        self.workplace.stop()
        self.znodes.stop()

    @property
    def launchers(self) -> list[LauncherProcess]:
        return self.workplace.launchers

    def launch(self, providers: StaticProvider | Sequence[Provider], **options: Any) -> LauncherProcess:
        """Starts a launcher and blocks until it serves; options as `Workplace.launch`. Launchers log what is usual."""
        options = {"command": self.candidate.command, "debug": False, **options}
        return self.workplace.launch(providers, **options)

    def wait_completed(self, request: Any, seconds: float) -> float:
        """Blocks until a request was completed; returns the time.monotonic() of Zuul's event.

        :raises RuntimeError: a launcher ended before that.
        """

        def completed() -> bool:
            for launcher in self.launchers:
                if not launcher.running:
                    raise RuntimeError(f"the launcher ended: {launcher.log_text().strip()[-300:]}")
            return request.id in self.client.completed

        wait_for(f"request {request.id} is completed", completed, seconds)
        moment: float = self.client.completed[request.id][1]
        return moment

    def read(self) -> Reading:
        """All counters now; CPU of all launchers together."""
        observer = self.znodes.kazoo.client_id[0]
        cpu = sum(launcher.cpu_seconds() for launcher in self.launchers)
        return read_counters(self.zookeeper, self.client.session[0], observer, cpu)

    def memory_mib(self) -> float:
        """Resident memory of the launchers that run, together."""
        return sum(_resident_mib(launcher.pid) for launcher in self.launchers)


def _resident_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    (line,) = [line for line in status.splitlines() if line.startswith("VmRSS:")]
    return int(line.split()[1]) / KIB_PER_MIB


def per_request(cost: Reading, count: int) -> dict[str, float | None]:
    """CPU in ms and packets of each request, by key of the usual metrics.

    ``received``: requests to the server, ``sent``: its answers and events; of launcher and load together.
    """
    everybody = cost.launcher + cost.client
    values: Mapping[str, float] = {
        "cpu_ms": cost.cpu_seconds * 1000,
        "client_cpu_ms": cost.client_cpu_seconds * 1000,
        "launcher_received": cost.launcher.received,
        "launcher_sent": cost.launcher.sent,
        "client_received": cost.client.received,
        "client_sent": cost.client.sent,
        "received": everybody.received,
        "sent": everybody.sent,
    }
    return {key: value / count for key, value in values.items()}
