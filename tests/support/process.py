# SPDX-License-Identifier: Apache-2.0
"""A child process with its output in a file, always ended by its own id."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.support.wait import wait_for


class ChildProcess:
    """Runs ``command`` with stdout and stderr appended to ``log``.

    `stop` and `kill` may be called at any time and more than once.
    """

    def __init__(
        self, command: Sequence[str], log: Path, *, env: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> None:
        self.command = list(command)
        self.log_path = log
        self._env = dict(os.environ if env is None else env)
        self._cwd = cwd
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Id of the running process. :raises RuntimeError: it was never started."""
        if self._process is None:
            raise RuntimeError(f"not started: {self.command[0]}")
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def returncode(self) -> int | None:
        """Exit status once it has ended (negative: the signal), else None."""
        return None if self._process is None else self._process.poll()

    def start(self) -> None:
        """Starts it; does not wait for anything."""
        if self.running:
            raise RuntimeError(f"already running: {self.command[0]}")
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                self.command,
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env=self._env,
                cwd=self._cwd,
            )

    def start_until(self, what: str, answers: Callable[[], bool]) -> None:
        """Starts it and blocks until it answers; if it does not, it is stopped.

        :param what: who answers, for the message.
        :raises AssertionError: it ended, or took too long; the text has the end of its log.
        """

        def look() -> bool:
            if not self.running:
                raise ChildProcessError(f"{what}: the process ended")
            return answers()

        self.start()
        try:
            wait_for(f"{what} answers", look)
        except (AssertionError, ChildProcessError) as error:
            text = self.log_text()[-2000:]
            self.stop()
            raise AssertionError(f"{error}\n{text}") from None

    def send_signal(self, number: int) -> None:
        """Sends a signal; nothing happens when the process has ended."""
        if self._process is not None:
            self._process.send_signal(number)

    def wait(self, seconds: float) -> int:
        """Blocks until it has ended and returns the exit status. :raises subprocess.TimeoutExpired: it did not end."""
        if self._process is None:
            raise RuntimeError(f"not started: {self.command[0]}")
        return self._process.wait(seconds)

    def stop(self, number: int = signal.SIGTERM, seconds: float = 15.0) -> int | None:
        """Ends it with a signal and, when that takes longer than ``seconds``, with SIGKILL."""
        if self._process is None:
            return None
        self._process.send_signal(signal.SIGCONT)
        self._process.send_signal(number)
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return self.kill()

    def kill(self) -> int | None:
        """Ends it with SIGKILL."""
        if self._process is None:
            return None
        self._process.kill()
        return self._process.wait(15)

    def usage(self) -> dict[str, int]:
        """Threads, open files and resident memory in MiB of the running process (proc(5))."""
        status = Path(f"/proc/{self.pid}/status").read_text(encoding="ascii", errors="replace")
        fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
        return {
            "threads": int(fields["Threads"]),
            "files": len(os.listdir(f"/proc/{self.pid}/fd")),
            "memory": int(fields["VmRSS"].split()[0]) // 1024,
        }

    def cpu_seconds(self) -> float:
        """User plus system time that the process used so far, all threads (proc(5), fields 14 and 15 of stat)."""
        fields = Path(f"/proc/{self.pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def log_text(self) -> str:
        """Everything that it has written so far."""
        return self.log_path.read_text(encoding="utf-8", errors="replace") if self.log_path.exists() else ""
