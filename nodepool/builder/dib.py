# SPDX-License-Identifier: Apache-2.0
"""`DibRun`: one run of diskimage-builder, in a session of its own (rules B-7, B-8, B-14, B-15).

Its output comes through a pipe: a build whose builder is gone ends when it writes. One thread waits for output, for the
end of the command, for the end of its time and for `DibRun.stop`, all with one selector.
"""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, Final

from nodepool.builder import process_session
from nodepool.builder.build_logs import BuildLog
from nodepool.builder.process_session import Process
from nodepool.clock import monotonic
from nodepool.guard import Guard, OnError

log = logging.getLogger("nodepool.builder.dib")

#: Time for diskimage-builder's own traps to unmount, between SIGTERM and SIGKILL, in seconds.
TRAP_SECONDS: Final = 20.0
#: What a command that has ended left behind may hold its output open. That long it is read.
DRAIN_SECONDS: Final = 2.0
#: Images are for others to read, whatever the daemon's own files are.
UMASK: Final = 0o022
#: diskimage-builder writes through this program. Without it its traps could not write, and would end.
OUTPUT_FILTER: Final = b"outfilter.py"
#: A line without an end is not kept beyond this.
_LONGEST_LINE: Final = 65536
_BLOCK: Final = 65536


@dataclass(frozen=True)
class RunResult:
    """How a run ended.

    :param status: exit code of the command; negative: the signal that ended it; None: it never ran, or was stopped.
    :param reason: why it is no success; empty = it is one.
    :param timed_out: its time was over.
    :param left: processes of it that could not be ended.
    """

    status: int | None
    reason: str = ""
    timed_out: bool = False
    left: list[Process] = field(default_factory=list)

    @property
    def succeeded(self) -> bool:
        return self.status == 0 and not self.reason


class DibRun:
    """One run. `run` blocks until it has ended; any thread may call `stop`, at any time.

    :param command: words of the command line.
    :param variables: its environment.
    :param on_line: gets each line of output; what it raises is logged.
    :param on_start: gets the id of the process, which is that of its session, too.
    :param trap_seconds: see `TRAP_SECONDS`.
    """

    def __init__(
        self,
        command: Sequence[str],
        variables: Mapping[str, str],
        build_log: BuildLog,
        on_line: Callable[[str], None] = lambda line: None,
        on_start: Callable[[int], None] = lambda pid: None,
        trap_seconds: float = TRAP_SECONDS,
    ) -> None:
        self._command = list(command)
        self._variables = dict(variables)
        self._log = build_log
        self._on_start = on_start
        self._trap_seconds = trap_seconds
        self._output = _Output(build_log, on_line)
        #: Why it is to end; "" = it is not.
        self._stop_reason = ""
        self._woken, self._wake = socket.socketpair()
        self._wake.setblocking(False)

    def stop(self, reason: str) -> None:
        """End the run, if it has not ended. The first reason counts. Does not block."""
        if not self._stop_reason:
            self._stop_reason = reason
            # After `run` nobody listens any more.
            with contextlib.suppress(OSError):
                self._wake.send(b"x")

    def run(self, timeout: float, spent: float = 0.0) -> RunResult:
        """Run the command; blocks until it and all that it started have ended. Call it once.

        :param timeout: seconds, of which other commands have ``spent`` some.
        """
        with self._woken, self._wake:
            if self._stop_reason:
                stopped = RunResult(None, self._stop_reason)
                self._write_end(stopped)
                return stopped
            try:
                process = self._start()
            except (OSError, ValueError) as error:
                reason = f"{self._command[0]} cannot be started: {error}"
                self._log.write_line(reason)
                return RunResult(None, reason)
            with Guard(log, "Error at the start of a build"):
                self._on_start(process.pid)
            # Nobody else would end it.
            with OnError(lambda _: self._kill(process)):
                return self._follow(process, timeout, spent)

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self._command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=self._variables,
            start_new_session=True,
            umask=UMASK,
            bufsize=0,
        )

    def _follow(self, process: subprocess.Popen[bytes], timeout: float, spent: float) -> RunResult:
        assert process.stdout is not None
        with process.stdout, _Events(process, self._woken, self._output) as events:
            deadline = monotonic() + timeout - spent
            while not events.ended and not self._stop_reason and monotonic() < deadline:
                events.wait(deadline - monotonic())
            if events.ended:
                result = self._complete(process, events)
            else:
                reason = self._stop_reason or f"it took longer than build-timeout, {timeout:g} s"
                left = self._end(process, events)
                result = RunResult(None, reason, timed_out=not self._stop_reason, left=left)
        self._output.end()
        self._write_end(result)
        return result

    def _write_end(self, result: RunResult) -> None:
        if result.status is None:
            self._log.write_line(f"The build was ended: {result.reason}")
        else:
            self._log.write_line(f"Exit code: {result.status}")

    def _complete(self, process: subprocess.Popen[bytes], events: _Events) -> RunResult:
        """The command has ended by itself; so must what it left behind."""
        deadline = monotonic() + DRAIN_SECONDS
        while not events.output_ended and monotonic() < deadline:
            events.wait(deadline - monotonic())
        left = process_session.members(process.pid)
        if left:
            log.warning("Ending what a build left behind: processes %s", ", ".join(str(one.pid) for one in left))
            left = process_session.end(process.pid, DRAIN_SECONDS)
        # Only now: once it was asked how it ended, its number may be that of somebody else's session.
        status = process.wait()
        return RunResult(status, f"exit code {status}" if status else "", left=left)

    def _end(self, process: subprocess.Popen[bytes], events: _Events) -> list[Process]:
        """SIGTERM, time for traps, whose output is read; then SIGKILL. Returns who is there even then."""
        session = process.pid
        told = process_session.terminate(session, spared=_filters_output)
        deadline = monotonic() + self._trap_seconds
        while monotonic() < deadline:
            if not process_session.members_going_on(session) and events.ended:
                process.wait()
                return []
            process_session.terminate_again(told)
            events.wait(min(process_session.LOOK_SECONDS, deadline - monotonic()))
        return self._kill(process)

    def _kill(self, process: subprocess.Popen[bytes]) -> list[Process]:
        """SIGKILL to all; returns who is there even then."""
        left = process_session.kill(process.pid)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(process_session.LOOK_SECONDS)
        return left


def _filters_output(one: Process) -> bool:
    """Is its program `OUTPUT_FILTER`? A shell that only has the name in its script is to end like all others."""
    return any(os.path.basename(word) == OUTPUT_FILTER for word in one.command_line().split(b"\0"))


class _Output:
    """Passes what comes out of a command on to its log and, by lines, to a reader."""

    def __init__(self, build_log: BuildLog, on_line: Callable[[str], None]) -> None:
        self._log = build_log
        self._on_line = on_line
        self._guard = Guard(log, "Error in a reader of a build's output")
        self._begun = b""

    def take(self, data: bytes) -> None:
        self._log.write(data)
        *lines, rest = (self._begun + data).split(b"\n")
        self._begun = rest[-_LONGEST_LINE:]
        for line in lines:
            with self._guard:
                self._on_line(line.decode("utf-8", "replace"))

    def end(self) -> None:
        """The last line may have no end: our own begin in a new one."""
        if self._begun:
            self.take(b"\n")


class _Events:
    """What happens to a command: output, its end, and somebody's wish that it ends."""

    def __init__(self, process: subprocess.Popen[bytes], woken: socket.socket, output: _Output) -> None:
        assert process.stdout is not None
        self._stdout: IO[bytes] = process.stdout
        self._woken = woken
        self._output = output
        #: Has the command ended?
        self.ended = False
        #: Has everybody who could write to its output?
        self.output_ended = False
        self._process_descriptor = os.pidfd_open(process.pid)
        self._selector = selectors.DefaultSelector()
        for source in (self._stdout, self._process_descriptor, woken):
            self._selector.register(source, selectors.EVENT_READ)

    def __enter__(self) -> _Events:
        return self

    def __exit__(self, *_: object) -> None:
        self._selector.close()
        os.close(self._process_descriptor)

    def wait(self, seconds: float) -> None:
        """Until something happens, at most so long."""
        for key, _ in self._selector.select(max(0.0, seconds)):
            if key.fileobj is self._stdout:
                self._read()
                continue
            # Each of these happens once.
            self._selector.unregister(key.fileobj)
            self.ended = self.ended or key.fileobj == self._process_descriptor

    def _read(self) -> None:
        data = os.read(self._stdout.fileno(), _BLOCK)
        if data:
            self._output.take(data)
        else:
            self._selector.unregister(self._stdout)
            self.output_ended = True
