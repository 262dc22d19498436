# SPDX-License-Identifier: Apache-2.0
"""The processes of a build: it runs in a session of its own (setsid(2)), to which all belong that it starts.

A process that makes a session of its own leaves it; diskimage-builder does not. What proc(5) says is all that is used.
"""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from nodepool.builder.as_root import run_as_root
from nodepool.clock import monotonic, sleep

log = logging.getLogger("nodepool.builder.process_session")

PROC: Final = Path("/proc")
#: So often it looks whether processes have ended, in seconds. Only while a build is being ended.
LOOK_SECONDS: Final = 0.1
#: So long SIGTERM waits for a quiet moment, and so often it looks for one, in seconds.
QUIET_SECONDS: Final = 0.5
QUIET_LOOK_SECONDS: Final = 0.02
#: Ids in one call of kill(1).
_IDS_A_CALL: Final = 1000
#: So often it looks for processes that were made while others were being stopped.
_ROUNDS: Final = 10


@dataclass(frozen=True)
class Process:
    """One that has not ended.

    :param started: clock ticks from the machine's start to its own.
    :param stopped: is it stopped by a signal? :param waits: does it wait for something?
    """

    pid: int
    session: int
    started: int
    stopped: bool = field(default=False, compare=False)
    waits: bool = field(default=False, compare=False)

    def command_line(self) -> bytes:
        """Its arguments, each with a zero byte behind it; empty = it is gone, or may not be looked at."""
        return _read(self.pid, "cmdline")

    def environment(self) -> list[bytes]:
        """``NAME=value`` of each variable that it began with; empty as for `command_line`."""
        return _read(self.pid, "environ").split(b"\0")


def _read(pid: int, name: str) -> bytes:
    try:
        return (PROC / str(pid) / name).read_bytes()
    except OSError:
        return b""


def process(pid: int) -> Process | None:
    """The process with an id; None: there is none, or it has ended and nobody has asked how."""
    # The second field is the name in brackets, and may have anything in it.
    _, bracket, rest = _read(pid, "stat").rpartition(b")")
    fields = rest.split()
    if not bracket or len(fields) < 20 or fields[0] in (b"Z", b"X"):
        return None
    return Process(pid, int(fields[3]), int(fields[19]), fields[0] == b"T", fields[0] in (b"S", b"D"))


def members(session: int) -> list[Process]:
    """All processes of a session."""
    found = (process(int(name)) for name in os.listdir(PROC) if name.isdigit())
    return [one for one in found if one is not None and one.session == session]


def send(number: signal.Signals, processes: Iterable[Process]) -> None:
    """Send a signal to processes, to root's with sudo. Who cannot be told is logged. Blocks for sudo."""
    foreign = []
    for one in processes:
        try:
            _send_to(one, number)
        except ProcessLookupError:
            continue
        except PermissionError:
            foreign.append(str(one.pid))
    for start in range(0, len(foreign), _IDS_A_CALL):
        ids = foreign[start : start + _IDS_A_CALL]
        problem = run_as_root("kill", "-s", number.name.removeprefix("SIG"), "--", *ids)
        if problem and any(process(int(pid)) for pid in ids):
            log.warning("%s to processes %s: %s", number.name, " ".join(ids), problem)


def _send_to(one: Process, number: signal.Signals) -> None:
    """Send a signal to a process, and to nobody who got its id since. Raises ProcessLookupError, PermissionError."""
    descriptor = os.pidfd_open(one.pid)
    try:
        if process(one.pid) != one:
            raise ProcessLookupError
        signal.pidfd_send_signal(descriptor, number)
    finally:
        os.close(descriptor)


#: Processes with the command line that each had when it got SIGTERM.
Told = dict[Process, bytes]


def terminate(session: int, spared: Callable[[Process], bool] = lambda _: False) -> Told:
    """Send SIGTERM once to each process of a session. Does not wait for their end; blocks for sudo and `QUIET_SECONDS`.

    They are stopped for that moment. Else one that is being made just then would miss it, and a shell waits for its
    child before it does what it wanted to do at its end. A shell that is just about to start a child does so first, and
    then waits for it: so all should be waiting for something when they get it.

    :param spared: gets none.
    :returns: those that got it, for `terminate_again`.
    """
    _wait_quiet(session)
    stopped: dict[int, Process] = {}
    for _ in range(_ROUNDS):
        new = [one for one in members(session) if one.pid not in stopped]
        if not new:
            break
        send(signal.SIGSTOP, new)
        stopped.update((one.pid, one) for one in new)
    told = {one: one.command_line() for one in stopped.values() if not spared(one)}
    send(signal.SIGTERM, told)
    send(signal.SIGCONT, stopped.values())
    return told


def _wait_quiet(session: int) -> None:
    """Until all processes of a session wait for something, the same ones in the same programs as shortly before."""
    deadline = monotonic() + QUIET_SECONDS
    before: Told = {}
    while now := {one: one.command_line() for one in members(session)}:
        if (now == before and all(one.waits for one in now)) or monotonic() >= deadline:
            return
        before = now
        sleep(QUIET_LOOK_SECONDS)


def terminate_again(told: Told) -> None:
    """Send SIGTERM once more to those that have begun another program since they got it. Blocks for sudo.

    A shell's child takes a signal as the shell does until it begins its own program, which knows nothing of the signal.
    The shell would wait for it.
    """
    changed = {
        one: line for one in told if (line := one.command_line()) and line != told[one] and process(one.pid) == one
    }
    send(signal.SIGTERM, changed)
    told.update(changed)


def members_going_on(session: int) -> list[Process]:
    """All processes of a session; those that are stopped go on. Blocks for sudo.

    sudo stops itself when it hears that its command was stopped, which may be after both were told to go on.
    """
    found = members(session)
    send(signal.SIGCONT, [one for one in found if one.stopped])
    return found


def wait_empty(session: int, seconds: float, told: Told | None = None) -> list[Process]:
    """Wait until nobody is in a session any more; returns who still is after so many seconds.

    :param told: what `terminate` returned.
    """
    deadline = monotonic() + seconds
    while left := members_going_on(session):
        terminate_again(told or {})
        if monotonic() >= deadline:
            return left
        sleep(LOOK_SECONDS)
    return []


def end(session: int, patience_seconds: float) -> list[Process]:
    """End a session: SIGTERM once, then SIGKILL to who is still there. Blocks; returns who is left even then.

    :param patience_seconds: between the two; a build unmounts what it mounted meanwhile.
    """
    if wait_empty(session, patience_seconds, terminate(session)):
        return kill(session)
    return []


def kill(session: int, seconds: float = 5.0) -> list[Process]:
    """SIGKILL to all of a session; blocks at most so many seconds. Returns who is left."""
    deadline = monotonic() + seconds
    while left := members(session):
        # Those that were being made while others were told are told the next time.
        send(signal.SIGKILL, left)
        if monotonic() >= deadline:
            break
        sleep(LOOK_SECONDS)
    return members(session)
