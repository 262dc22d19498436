# SPDX-License-Identifier: Apache-2.0
"""One run of diskimage-builder, in a session of its own (rules B-7, B-8, B-14, B-15).

Its output comes through a pipe: a build whose builder has ended ends when it writes. One thread waits for output, for
the end of the command, for the end of its time and for `DibRun.stop`, all with one selector. After the run (`DibRun`)
come the processes of a session and what a build mounted: how both are ended. Then the directories of a builder:
`WorkDir` of one build and that of the process.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import re
import selectors
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import IO, Final

from nodepool.builder.image_files import BUILDER_ID_FILE, BuildLog, ImageFiles, run_as_root
from nodepool.clock import monotonic, sleep
from nodepool.exceptions import ConfigError
from nodepool.guard import Guard, OnError

log = logging.getLogger("nodepool.builder.dib")

#: Time for diskimage-builder's own traps to unmount, between SIGTERM and SIGKILL, in seconds.
TRAP_SECONDS: Final = 20.0
#: What a command that has ended left behind may hold its output open. That long it is read.
DRAIN_SECONDS: Final = 2.0
#: Images are for others to read, whatever the daemon's own files are.
UMASK: Final = 0o022
#: A line without an end is not kept beyond this.
_LONGEST_LINE: Final = 65536
_BLOCK: Final = 65536


@dataclass(frozen=True)
class RunResult:
    """How a run ended.

    :param status: exit code of the command; negative: the signal that ended it; None: it never ran, or was stopped.
    :param reason: why it is no success; empty = it is one.
    """

    status: int | None
    reason: str = ""

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
                result = RunResult(None, self._stop_reason or f"it took longer than build-timeout, {timeout:g} s")
                self._end(process, events)
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
        left = members(process.pid)
        if left:
            log.warning("Ending what a build left behind: processes %s", ", ".join(str(one.pid) for one in left))
            end(process.pid, DRAIN_SECONDS)
        # Only now: once it was asked how it ended, its number may be that of somebody else's session.
        status = process.wait()
        return RunResult(status, f"exit code {status}" if status else "")

    def _end(self, process: subprocess.Popen[bytes], events: _Events) -> None:
        """SIGTERM, time for traps, whose output is read; then SIGKILL."""
        session = process.pid
        notified = terminate(session)
        deadline = monotonic() + self._trap_seconds
        while monotonic() < deadline:
            if not members_going_on(session) and events.ended:
                process.wait()
                return
            terminate_again(notified)
            events.wait(min(LOOK_SECONDS, deadline - monotonic()))
        self._kill(process)

    def _kill(self, process: subprocess.Popen[bytes]) -> None:
        """SIGKILL to all."""
        kill(process.pid)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(LOOK_SECONDS)


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


# The processes of a build: it runs in a session of its own (setsid(2)), to which all belong that it starts.
#
# A process that makes a session of its own leaves it; diskimage-builder does not. What proc(5) says is all that is
# used.


PROC: Final = Path("/proc")
#: So often it looks whether processes have ended, in seconds. Only while a build is being ended.
LOOK_SECONDS: Final = 0.1
#: Ids in one call of kill(1).
_IDS_A_CALL: Final = 1000
#: So often it looks for processes that were made while others were being stopped.
_ROUNDS: Final = 10


@dataclass(frozen=True)
class Process:
    """One that has not ended.

    :param started: clock ticks from the machine's start to its own.
    :param stopped: is it stopped by a signal?
    """

    pid: int
    session: int
    started: int
    stopped: bool = field(default=False, compare=False)

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


def process_of(pid: int) -> Process | None:
    """The process with an id; None: there is none, or it has ended and nobody has asked how."""
    # The second field is the name in brackets, and may have anything in it.
    _, bracket, rest = _read(pid, "stat").rpartition(b")")
    fields = rest.split()
    if not bracket or len(fields) < 20 or fields[0] in (b"Z", b"X"):
        return None
    return Process(pid, int(fields[3]), int(fields[19]), fields[0] == b"T")


def members(session: int) -> list[Process]:
    """All processes of a session."""
    found = (process_of(int(name)) for name in os.listdir(PROC) if name.isdigit())
    return [one for one in found if one is not None and one.session == session]


def send(number: signal.Signals, processes: Iterable[Process]) -> None:
    """Send a signal to processes, to root's with sudo. Who cannot get it is logged. Blocks for sudo."""
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
        if problem and any(process_of(int(pid)) for pid in ids):
            log.warning("%s to processes %s: %s", number.name, " ".join(ids), problem)


def _send_to(one: Process, number: signal.Signals) -> None:
    """Send a signal to a process, and to nobody who got its id since. Raises ProcessLookupError, PermissionError."""
    descriptor = os.pidfd_open(one.pid)
    try:
        if process_of(one.pid) != one:
            raise ProcessLookupError
        signal.pidfd_send_signal(descriptor, number)
    finally:
        os.close(descriptor)


#: Processes with the command line that each had when it got SIGTERM.
Notified = dict[Process, bytes]


def terminate(session: int) -> Notified:
    """Send SIGTERM once to each process of a session but its output filter. Does not wait for ends; blocks for sudo.

    They are stopped for that moment. Else one that is being made just then would miss it, and a shell waits for its
    child before it does what it wanted to do at its end.

    :returns: those that got it, for `terminate_again`.
    """
    stopped: dict[int, Process] = {}
    for _ in range(_ROUNDS):
        new = [one for one in members(session) if one.pid not in stopped]
        if not new:
            break
        send(signal.SIGSTOP, new)
        stopped.update((one.pid, one) for one in new)
    notified = {one: line for one in stopped.values() if not _filters_output(line := one.command_line())}
    send(signal.SIGTERM, notified)
    send(signal.SIGCONT, stopped.values())
    return notified


def _filters_output(line: bytes) -> bool:
    """diskimage-builder writes through outfilter.py: without it its traps could not write, and would end."""
    return b"outfilter.py" in map(os.path.basename, line.split(b"\0"))


def terminate_again(notified: Notified) -> None:
    """Send SIGTERM once more to those that have begun another program since they got it. Blocks for sudo.

    A shell's child takes a signal as the shell does until it begins its own program, which knows nothing of the signal.
    The shell would wait for it.
    """
    changed = {
        one: line
        for one in notified
        if (line := one.command_line()) and line != notified[one] and process_of(one.pid) == one
    }
    send(signal.SIGTERM, changed)
    notified.update(changed)


def members_going_on(session: int) -> list[Process]:
    """All processes of a session; those that are stopped go on. Blocks for sudo.

    sudo stops itself when it hears that its command was stopped, which may be after both got the signal to go on.
    """
    found = members(session)
    send(signal.SIGCONT, [one for one in found if one.stopped])
    return found


def end(session: int, patience_seconds: float) -> list[Process]:
    """End a session: SIGTERM once, then SIGKILL to who is still there. Blocks; returns who is left even then.

    :param patience_seconds: between the two; a build unmounts what it mounted meanwhile.
    """
    notified = terminate(session)
    deadline = monotonic() + patience_seconds
    while members_going_on(session):
        terminate_again(notified)
        if monotonic() >= deadline:
            return kill(session)
        sleep(LOOK_SECONDS)
    return []


def kill(session: int, seconds: float = 5.0) -> list[Process]:
    """SIGKILL to all of a session; blocks at most so many seconds. Returns who is left."""
    deadline = monotonic() + seconds
    while left := members(session):
        # Those that were being made while others got it get it the next time.
        send(signal.SIGKILL, left)
        if monotonic() >= deadline:
            break
        sleep(LOOK_SECONDS)
    return members(session)


# What a build mounted below its work directory, and the loop devices whose files are there: their removal.


MOUNTS: Final = Path("/proc/self/mountinfo")
BLOCK_DEVICES: Final = Path("/sys/block")
#: Blanks and the like in paths of mountinfo: a backslash and three octal digits.
_ESCAPED: Final = re.compile(rb"\\([0-7]{3})")
#: Removals of a directory with an image in it take long.
_REMOVAL_SECONDS: Final = 300.0


def _is_below(path: str, directory: str) -> bool:
    return path == directory or path.startswith(f"{directory}/")


def mount_points(directory: Path, table: bytes | None = None) -> list[str]:
    """Where something is mounted at or below a directory, the one mounted last first.

    :param table: text of ``/proc/self/mountinfo``; None = read it.
    """
    lines = (MOUNTS.read_bytes() if table is None else table).splitlines()
    points = [os.fsdecode(_ESCAPED.sub(lambda match: bytes([int(match[1], 8)]), line.split()[4])) for line in lines]
    return [point for point in reversed(points) if _is_below(point, str(directory))]


def loop_devices(directory: Path, devices: Path = BLOCK_DEVICES) -> list[str]:
    """Names of loop devices, e.g. ``loop3``, whose file is below a directory, also when it was removed already.

    :param directory: its name is that of no other one. The kernel tells whole paths only as long as the file system is
        mounted where the device was set up: a mount namespace of a service ends with it.
    """
    found = []
    for device in sorted(devices.glob("loop*")):
        try:
            file = (device / "loop" / "backing_file").read_text(encoding="utf-8", errors="surrogateescape").strip()
        except OSError:
            continue
        if _is_below(file.removesuffix(" (deleted)"), str(directory)) or f"/{directory.name}/" in file:
            found.append(device.name)
    return found


def clear(directory: Path) -> list[str]:
    """Unmount whatever is mounted below a directory and give its loop devices back. Blocks.

    :return: what could not be undone, in words.
    """
    problems = []
    for point in mount_points(directory):
        problem = run_as_root("umount", "--", point)
        # What is still used is taken out of the tree all the same: nobody can write to it by a path any more.
        if problem and point in mount_points(directory):
            problem = run_as_root("umount", "--lazy", "--", point)
        if problem and point in mount_points(directory):
            problems.append(f"{point} is still mounted: {problem}")
        else:
            log.info("Unmounted %s", point)
    return problems + [problem for name in loop_devices(directory) for problem in _detach(name)]


def _detach(name: str) -> list[str]:
    """Give back a loop device, with the partitions that device mapper made of it."""
    for holder in sorted((BLOCK_DEVICES / name / "holders").glob("dm-*")):
        try:
            mapped = (BLOCK_DEVICES / holder.name / "dm" / "name").read_text(encoding="utf-8").strip()
        except OSError:
            continue
        run_as_root("dmsetup", "remove", "--retry", mapped)
    problem = run_as_root("losetup", "--detach", f"/dev/{name}")
    if problem and (BLOCK_DEVICES / name / "loop").exists():
        return [f"/dev/{name} is still in use: {problem}"]
    log.info("Detached /dev/%s", name)
    return []


def remove(directory: Path) -> list[str]:
    """Remove a work directory with all that is in it, root's files, too; first `clear` it. Blocks.

    :return: what is in the way, in words. While something is mounted there, nothing is removed: it is not ours.
    """
    problems = clear(directory)
    if mount_points(directory):
        return problems
    if directory.is_symlink() or not directory.exists():
        return problems
    if os.geteuid() != 0:
        # Perhaps nothing of it is root's.
        shutil.rmtree(directory, ignore_errors=True)
        if not directory.exists():
            return problems
    problem = run_as_root("rm", "-rf", "--one-file-system", "--", str(directory), timeout=_REMOVAL_SECONDS)
    return [*problems, f"{directory}: {problem}"] if problem else problems


# `WorkDir`: where one build has its temporary files, and a note of it that outlives the builder.
#
# The note is ``<images-dir>/.builds/<image>-<build id>.json``. A builder holds a lock of this file (flock(2)) while it
# builds; the lock ends with the process. So the next builder in the same directory knows which builds were interrupted,
# and ends what is left of them: processes, mounts, loop devices, files.


#: Below ``images-dir``. Who lists images finds no image in it.
NOTES: Final = ".builds"
#: Time between SIGTERM and SIGKILL for processes of an interrupted build, in seconds.
LEFTOVER_SECONDS: Final = 10.0
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class Note:
    """What is known of a build's temporary things.

    :param directory: work directory.
    :param output: path of the image files without what follows the build's id.
    :param session: of its processes; 0 = it has none.
    :param started: of the process that began the session; see `Process`.
    :param machine: on which one, and in which namespace of process ids, these numbers mean anything.
    """

    directory: str
    output: str
    session: int = 0
    started: int = 0
    machine: str = ""


def this_machine() -> str:
    """Where process ids are those that this process sees, since the machine was started."""
    try:
        boot = _BOOT_ID.read_text(encoding="ascii").strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError as error:
        log.debug("The machine does not say which it is: %s", error)
        return ""


class WorkDir:
    """For the thread that builds. Make it under the lock of the image's builds.

    :param parent: below which directory the temporary files go.
    :raises OSError: it cannot be made, or the note cannot be written.
    """

    def __init__(self, images_dir: Path, parent: Path, name: str) -> None:
        # The table of mounts has paths without links.
        self.path = parent.resolve() / f"nodepool-{name}"
        self._note = Note(str(self.path), str(images_dir / name))
        notes = images_dir / NOTES
        notes.mkdir(parents=True, exist_ok=True)
        self._note_path = notes / f"{name}.json"
        self._file = _open_note(self._note_path, create=True)
        if self._file is None:
            raise FileExistsError(f"another builder works on {name}")
        with OnError(lambda _: self._end(forget=True)):
            _write_note(self._file, self._note)
            # Only this user may look at what is in the making, and nothing may be there before.
            self.path.mkdir(mode=0o700, parents=True)

    def started(self, pid: int) -> None:
        """The build runs, in the session of this process. Raises OSError."""
        process = process_of(pid)
        if process is not None and self._file is not None:
            note = replace(self._note, session=pid, started=process.started, machine=this_machine())
            _write_note(self._file, note)

    def remove(self) -> list[str]:
        """Unmount and remove everything, after the end of the processes. Blocks.

        :return: what could not be done, in words; then the note stays for the next start.
        """
        problems = remove(self.path)
        self._end(forget=not problems)
        return problems

    def _end(self, forget: bool) -> None:
        if forget:
            self._note_path.unlink(missing_ok=True)
        if self._file is not None:
            self._file.close()
            self._file = None


def _open_note(path: Path, create: bool = False) -> IO[str] | None:
    """The note, locked; None: its builder works, or has just removed it. Raises OSError."""
    try:
        file = open(path, "a+" if create else "r+", encoding="utf-8")  # noqa: SIM115 - it is closed with the lock
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    return file


def _write_note(file: IO[str], note: Note) -> None:
    file.seek(0)
    file.truncate()
    json.dump(asdict(note), file)
    file.flush()


def clean_interrupted(images_dir: Path) -> list[str]:
    """End what is left of builds whose builders are gone. Blocks.

    :return: what could not be undone, in words. It is tried again at the next start.
    """
    problems = []
    for path in sorted((images_dir / NOTES).glob("*.json")):
        # One note that makes no sense must not keep the others.
        with Guard(log, "Error with what an interrupted build left, %s", path):
            problems += _clean(path)
    return problems


def _clean(path: Path) -> list[str]:
    file = _open_note(path)
    if file is None:
        return []
    with file:
        note = _read_note(file)
        if note is None:
            log.error("%s cannot be understood, it is removed", path)
            path.unlink()
            return []
        log.warning("Removing what the interrupted build %s left", path.stem)
        _end_processes(note)
        problems = remove(Path(note.directory))
        if not problems:
            path.unlink(missing_ok=True)
        return problems


def _read_note(file: IO[str]) -> Note | None:
    """None: it was not written to its end, or by somebody else."""
    file.seek(0)
    try:
        note = Note(**json.load(file))
    except (ValueError, TypeError):
        return None
    directory = Path(note.directory)
    # What is removed as root is only what this program has named.
    ours = directory.is_absolute() and directory.name.startswith("nodepool-") and ".." not in directory.parts
    return note if ours else None


def _end_processes(note: Note) -> None:
    if note.session and note.machine == this_machine() and _is_ours(note):
        left = end(note.session, LEFTOVER_SECONDS)
        if left:
            log.error("Processes %s of an interrupted build do not end", ", ".join(str(one.pid) for one in left))


def _is_ours(note: Note) -> bool:
    """Is the session of that number still the build's, and not one of somebody else who got the number?"""
    first = process_of(note.session)
    if first is not None:
        return first.started == note.started
    # The first process has ended. Its number is not given out again while somebody is in its session.
    mark = f"TMPDIR={note.directory}".encode()
    return any(mark in one.environment() for one in members(note.session))


# ``images-dir`` belongs to one builder process at a time (rule B-10).


def take_directory(files: ImageFiles) -> int:
    """Make the directory and the identity if there is none, and lock ``builder_id.txt`` (flock(2)). Waits for nobody.

    Two processes with one identity would each remove files that the other one needs. What a builder starts does not
    inherit the lock. Nodepool 11.0.0 does not take it.

    :return: an open file: the lock ends with it, or with the process.
    :raises ConfigError: another process has it, or it cannot be used.
    """
    directory = files.directory
    try:
        files.builder_id()
        return _lock_directory(directory / BUILDER_ID_FILE)
    except BlockingIOError:
        raise ConfigError(
            f"images-dir {directory}: another nodepool-builder that runs uses it; stop that one, or give this one "
            "a directory of its own"
        ) from None
    except OSError as error:
        where = error.filename or directory / BUILDER_ID_FILE
        raise ConfigError(f"images-dir {directory} cannot be used: {error.strerror}: {where}") from error


def _lock_directory(path: Path) -> int:
    """Raises BlockingIOError: somebody else has the lock; OSError."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except PermissionError:
        # Of a builder that ran as somebody else. Only NFS wants to write what is locked.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        raise
    return fd
