# SPDX-License-Identifier: Apache-2.0
"""The processes of a run: some launchers are released ones, the others ours; each has the same file for both."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from tests.chaos.providers import rich_provider, static_provider
from tests.chaos.world import Limits, World, cloud_provider, own_label
from tests.support.launcher import OUR_COMMAND, ROOT, LauncherProcess
from tests.support.launcher_config import Provider
from tests.support.released import ReleasedPrograms
from tests.support.wait import wait_for


class Kind(StrEnum):
    """Whose launcher it is."""

    RELEASED = "released"
    OURS = "ours"


LAUNCHERS = 3
#: Cores and memory are not what is short here.
LIMITS = Limits(servers=14, cores=100, ram=200 * 1024, tenant=4)
START_SECONDS = 150.0
#: As in the units of doc/source/how-to/migrate.rst: systemd kills what has not ended by then.
STOP_SECONDS = 60.0
#: After a launcher is registered again: what was decided while it was away may still be on its way to the client.
GRACE_SECONDS = 5.0


@dataclass(frozen=True)
class Absence:
    """Seconds of the run in which a launcher was not registered."""

    launcher: int
    begin: float
    end: float


class Site(World):
    """All three launchers have the first cloud, the last two the second one, the first two the static hosts.

    :param released: programs of the released package.
    """

    session_seconds = 10.0

    def __init__(self, directory: Path, seed: int, released: ReleasedPrograms) -> None:
        self.released = released
        self.kinds = dict.fromkeys(range(LAUNCHERS), Kind.RELEASED)
        self.absences: list[Absence] = []
        #: Of all launchers that were started: whose it is, and its process.
        self.started: list[tuple[Kind, LauncherProcess]] = []
        super().__init__(directory, seed, LAUNCHERS, LIMITS)
        # Released launchers do not know them.
        self.mixes = False

    def _make_launcher(self, number: int) -> LauncherProcess:
        kind = self.kinds[number]
        command = [str(self.released.launcher)] if kind is Kind.RELEASED else list(OUR_COMMAND)
        log = self.directory / f"launcher{number}-{len(self.started)}-{kind}.log"
        launcher = LauncherProcess(self.config_of(number), log, command, environment=self.launcher_environment(number))
        self.started.append((kind, launcher))
        return launcher

    def _connect(self, number: int) -> None:
        shutil.copy(self.directory / "clouds.yaml", self._clouds_file(number))

    def zookeeper_ports_of(self, number: int) -> Sequence[int]:
        return ()

    def config_of(self, number: int) -> Path:
        """The configuration file of a launcher, whichever kind it is of."""
        return self.directory / f"nodepool{number}.yaml"

    def providers_of(self, number: int, launch_timeout: int) -> list[Provider]:
        providers: list[Provider] = [cloud_provider(number, self.limits, launch_timeout=60)]
        if number > 0:
            providers.append(rich_provider(self.sshd.port, launch_timeout=60))
        if number < LAUNCHERS - 1:
            providers.append(static_provider(self.sshd.port, self.sshd.host_keys))
        return providers

    def replace(self, number: int, kind: Kind, overlap: bool) -> None:
        """Ends a launcher and starts one of a kind with the same file; blocks until that is registered.

        :param overlap: the new one is started first.
        :raises AssertionError: one did not start, or one of ours did not stop in order.
        """
        old, known = self.launchers[number], self._pool_ids(number)
        self.note(f"launcher {number} becomes {kind}{', started first' if overlap else ''}")
        if not overlap:
            begin = self.now()
            self._end(number, self.kinds[number], old)
        old_kind, self.kinds[number] = self.kinds[number], kind
        new = self._make_launcher(number)
        new.start()
        wait_for(f"launcher {number} ({kind}) is registered", lambda: self._serves(number, new, known), START_SECONDS)
        if not overlap:
            self.absences.append(Absence(number, begin, self.now() + GRACE_SECONDS))
        self.launchers[number] = new
        if overlap:
            self._end(number, old_kind, old)
        self.note(f"launcher {number} is {kind}")

    def was_away(self, number: int, when: float) -> bool:
        """Was a launcher not registered then?"""
        return any(a.launcher == number and a.begin <= when <= a.end for a in self.absences)

    def run_tool(self, arguments: list[str], kind: Kind) -> subprocess.CompletedProcess[str]:
        """Runs the operator's command line of one side; blocks for three minutes at most."""
        tool = [str(self.released.tool)] if kind is Kind.RELEASED else [sys.executable, "-m", "nodepool.cmd.cli"]
        environment = {**os.environ, **self.launcher_environment(0)}
        # Both have packages of the same name: neither may find the other's.
        environment.pop("PYTHONPATH", None)
        if kind is Kind.OURS:
            environment["PYTHONPATH"] = str(ROOT)
        return subprocess.run(
            [*tool, *arguments], capture_output=True, text=True, timeout=180, check=False, env=environment
        )

    def stop(self) -> None:
        for _, launcher in self.started:
            if launcher.running and launcher not in self.launchers:
                launcher.kill()
        super().stop()

    def _pool_ids(self, number: int) -> set[str]:
        return {str(pool["id"]) for pool in self.znodes.pools() if own_label(number) in pool["supported_labels"]}

    def _serves(self, number: int, launcher: LauncherProcess, known: set[str]) -> bool:
        assert launcher.running, f"launcher {number} ended: {launcher.log_text()[-2000:]}"
        running = {str(pool["id"]) for pool in self.znodes.pools() if pool.get("state") == "running"}
        return bool((self._pool_ids(number) - known) & running)

    def _end(self, number: int, kind: Kind, launcher: LauncherProcess) -> None:
        launcher.send_signal(signal.SIGINT)
        try:
            status = launcher.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            launcher.kill()
            # The released launcher waits for launches that cannot end any more, until their attempts are used up.
            assert kind is Kind.RELEASED, f"launcher {number} did not stop within {STOP_SECONDS:g} s"
            self.note(f"launcher {number} ({kind}) was killed: it did not stop within {STOP_SECONDS:g} s")
            return
        assert status == 0, f"launcher {number} stopped with status {status}"
