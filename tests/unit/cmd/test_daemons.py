# SPDX-License-Identifier: Apache-2.0
"""Daemons: signals, systemd, pid files, the way into the background, and their end (reference/commands 3, 4)."""

from __future__ import annotations

import logging
import os
import pwd
import signal
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest

from nodepool import log_names
from nodepool.cmd import daemon
from nodepool.cmd.app import CommandError
from tests.support.launcher import ROOT
from tests.support.manual_clock import monotonic_clock
from tests.support.tables import rows
from tests.support.wait import wait_for

TERM: Final = signal.SIGTERM


class Service:
    """Ends when it is stopped.

    :param deaf: it does not end.
    """

    def __init__(self, *, deaf: bool = False) -> None:
        self.ready = threading.Event()
        self.last_loop = self.stop_seconds = 0.0
        self.finished = False
        self.deaf = deaf
        self.running, self.stopping, self.stopped = (threading.Event() for _ in range(3))

    def start(self) -> None:
        self.running.set()

    def on_stop_signal(self, number: int) -> bool:
        return False

    def run(self) -> None:
        self.stopped.wait(60)

    def stop(self) -> None:
        self.stopping.set()
        if self.deaf:
            self.stopped.wait(60)
        self.stopped.set()


def runner_of(service: Any, notifier: daemon.Notifier | None = None, **options: Any) -> daemon.ServiceRunner:
    return daemon.ServiceRunner(service, notifier or daemon.Notifier({}), **options)


@pytest.fixture
def notifier(tmp_path: Path) -> Iterator[daemon.Notifier]:
    """Tells a socket as systemd's; `told` reads it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.setblocking(False)
        made = daemon.Notifier({"NOTIFY_SOCKET": systemd.getsockname(), "WATCHDOG_USEC": "40000000"})
        made.systemd = systemd  # type: ignore[attr-defined]
        yield made


def told(notifier: Any) -> list[str]:
    """First lines of what systemd got since the last call."""
    found = []
    while True:
        try:
            found.append(notifier.systemd.recv(1000).decode().splitlines()[0])
        except BlockingIOError:
            return found


def when(event: threading.Event, action: Callable[[], object]) -> threading.Thread:
    """Do something in another thread once an event is there."""

    def wait() -> None:
        assert event.wait(30)
        action()

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def kill(number: int = TERM) -> None:
    os.kill(os.getpid(), number)


def test_second_signal_and_time_hasten(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """A service that does not stop is left behind; when its time is over the log says what it was doing."""
    caplog.set_level(logging.DEBUG, "nodepool")
    service = Service(deaf=True)
    runner = runner_of(service)
    helper = when(service.stopping, lambda: runner.post(TERM))
    runner.post(TERM)
    assert (runner.run(), runner.abandoned) == (0, True)
    service.stopped.set()
    helper.join()
    service = Service(deaf=True)
    runner = runner_of(service)
    monkeypatch.setattr(daemon, "STOP_SECONDS", 0.01)
    runner.post(TERM)
    assert (runner.run(), runner.abandoned) == (1, True)
    assert log_names.STACK_DUMP in {record.name for record in caplog.records}
    service.stopped.set()


def test_ends_that_are_errors(caplog: pytest.LogCaptureFixture) -> None:
    """Also of a thread: the log says so, because stderr of a daemon may be nowhere."""
    service = Service()
    service.stopped.set()
    assert runner_of(service).run() == 1
    service.start = deque().popleft  # type: ignore[method-assign]
    with pytest.raises(IndexError):
        runner_of(service).run()
    before, service = threading.excepthook, Service()

    def start() -> None:
        thread = threading.Thread(target=deque().popleft, name="odd")
        thread.start()
        thread.join()
        kill()

    service.start = start  # type: ignore[method-assign]
    assert runner_of(service).run() == 0
    assert "Thread odd ended by an error" in caplog.text
    assert threading.excepthook is before


def test_what_systemd_hears(notifier: daemon.Notifier, monkeypatch: pytest.MonkeyPatch) -> None:
    """READY once, the watchdog while the main loop turns, and a reload with its outcome; before READY nothing."""
    service, clock, loaded = Service(), monotonic_clock(monkeypatch, daemon), list[bool]()
    runner = runner_of(service, notifier)
    monkeypatch.setattr(daemon, "look_less_often", lambda: loaded.append(True))

    def heard(seconds: float) -> list[str]:
        clock.now += seconds
        runner.notify()
        return told(notifier)

    runner.on_reload("reloading")
    assert (heard(0), loaded) == ([], [])
    service.last_loop = clock.now
    service.ready.set()
    assert (heard(0), loaded) == (["READY=1", "WATCHDOG=1"], [True])
    assert heard(5) == [], "not more often than needed"
    assert heard(10) == ["WATCHDOG=1"]
    assert heard(10) == [], "the main loop stands still"
    service.last_loop = clock.now
    assert heard(0) == ["WATCHDOG=1"]
    runner.on_reload("reloading")
    assert (heard(0), loaded) == (["RELOADING=1"], [True])
    runner.on_reload("serving")
    assert (heard(0), loaded) == (["READY=1"], [True, True])


@rows(__file__, "test_watchdog_time")
def test_watchdog_time(environment: dict[str, str], seconds: float | None) -> None:
    """A socket that is not there is no error."""
    values = {name: value.replace("PID", str(os.getpid())) for name, value in environment.items()}
    notifier = daemon.Notifier({"NOTIFY_SOCKET": "/nowhere", **values})
    notifier.ready()
    assert notifier.watchdog_seconds == seconds


def test_abstract_socket() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(f"\0nodepool-test-{os.getpid()}")
        systemd.settimeout(30)
        notifier = daemon.Notifier({"NOTIFY_SOCKET": f"@nodepool-test-{os.getpid()}"})
        notifier.reloading()
        first, second = systemd.recv(1000).decode().splitlines()
        assert (first, int(second.removeprefix("MONOTONIC_USEC=")) > 0) == ("RELOADING=1", True)
        notifier.ready("busy")
        assert systemd.recv(1000) == b"READY=1\nSTATUS=busy"


def take_over(path: Path, content: str | None) -> None:
    """A pid file with this content (None = there is none) does not keep a daemon from starting."""
    if content is not None:
        path.write_text(content, encoding="ascii")
    pidfile = daemon.PidFile(str(path), timeout=0)
    pidfile.acquire()
    with pidfile:
        assert path.read_text(encoding="ascii") == f"{os.getpid()}\n"
        assert pidfile.read() == os.getpid()
        with pytest.raises(daemon.PidFileError, match=f"another daemon is running \\(process {os.getpid()}\\)"):
            daemon.PidFile(str(path), timeout=0).acquire()
    assert not path.exists()


@pytest.mark.parametrize("content", ["", "nonsense", "-1", "99999999999999999999", "DEAD"])
def test_pid_file_that_means_nothing(tmp_path: Path, content: str) -> None:
    """reference/commands 3: a stale pid file is broken."""
    with subprocess.Popen(["true"]) as dead:
        dead.wait(30)
    take_over(tmp_path / "nodepool.pid", content.replace("DEAD", f"{dead.pid}\n"))


@rows(__file__, "test_number_of_a_process")
def test_number_of_a_process(tmp_path: Path, program: str, running: bool) -> None:
    """Numbers are used again, and the released daemons use no flock: a running daemon counts, and not a directory or an
    argument with its name.
    """
    path, script = tmp_path / "daemon.pid", tmp_path / "nodepool" / program
    script.parent.mkdir(parents=True)
    script.write_text("input()", encoding="utf-8")
    command = [sys.executable, "-u", str(script), "nodepool-launcher"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as other:
        wait_for("it runs", lambda: program.encode() in Path(f"/proc/{other.pid}/cmdline").read_bytes())
        if not running:
            take_over(path, f"{other.pid}\n")
            return
        path.write_text(f"{other.pid}\n", encoding="ascii")
        with pytest.raises(daemon.PidFileError, match=f"process {other.pid}"):
            daemon.PidFile(str(path), timeout=0).acquire()


def test_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """reference/commands 3: after a boot ``/var/run`` is empty: the last one is made, and nothing above it."""
    umask = os.umask(0o077)
    try:
        take_over(tmp_path / "run" / "nodepool.pid", None)
    finally:
        os.umask(umask)
    assert (tmp_path / "run").stat().st_mode & 0o777 == 0o755
    daemon.make_directory_of(tmp_path / "log" / "nodepool.log", 0o750)
    daemon.make_directory_of(tmp_path / "run" / "nodepool.log", 0o777)
    daemon.make_directory_of(tmp_path / "a" / "b" / "nodepool.log", 0o750)
    assert {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {"run": 0o755, "log": 0o750}
    missing, user = tmp_path / "missing" / "too", pwd.getpwuid(os.geteuid()).pw_name
    with pytest.raises(daemon.PidFileError, match="cannot write the pid file: No such file or directory") as caught:
        daemon.PidFile(str(missing / "nodepool.pid")).acquire()
    assert f"make the directory: install -d -o {user} {missing}," in str(caught.value)
    # A user who has no name.
    monkeypatch.setattr(os, "geteuid", lambda: 4_000_000_000)
    assert daemon.remedy(missing / "f") == f"make the directory: install -d -o 4000000000 {missing}"
    assert daemon.remedy(tmp_path / "f") == f"let the user 4000000000 write to {tmp_path}"


def ended(program: str, *arguments: str, **environment: str) -> tuple[int, str, str]:
    """Status and output of a process."""
    place = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    command = [sys.executable, *(("-c", program) if "\n" in program else ("-m", program)), *arguments]
    done = subprocess.run(command, env=place, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout, done.stderr


@rows(__file__, "test_no_thread_is_waited_for")
def test_no_thread_is_waited_for(start: str) -> None:
    """The end is bounded, whatever a thread waits for, e.g. for a cloud."""
    program = f"""
import sys, threading
from concurrent.futures import ThreadPoolExecutor
from nodepool.cmd.daemon import finish
begun = threading.Event()
def hang():
    begun.set()
    threading.Event().wait()
{start}
begun.wait()
sys.exit(finish(3))
"""
    assert ended(program)[0] == 3


@pytest.mark.parametrize("module", ["argparse", "nodepool.cmd.daemon", "nodepool.launcher.supervisor"])
def test_stop_while_the_launcher_is_imported(tmp_path: Path, module: str) -> None:
    """`systemctl stop` right after the start: exit status 0, and nothing to say."""
    # Python imports it before anything else; it sends the signal when the launcher imports the module.
    (tmp_path / "sitecustomize.py").write_text(
        "import os, signal, sys\nclass Hook:\n    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == {module!r}: os.kill(os.getpid(), signal.SIGTERM)\nsys.meta_path.insert(0, Hook())\n"
    )
    arguments = ("-f", "-c", str(tmp_path / "nodepool.yaml"))
    assert ended("nodepool.cmd.launcher", *arguments, PYTHONPATH=f"{tmp_path}:{ROOT}") == (0, "", "")


def test_console() -> None:
    """It answers, on this host only, and keeps its output apart; a port that is taken is named, with the option."""
    stdout = sys.stdout
    server = daemon.ReplServer({"answer": 42}, port=0)
    assert server.server_address[0] == "127.0.0.1"
    port = server.server_address[1]
    with pytest.raises(CommandError, match=f"--repl: .* localhost:{port}: Address already in use; leave out --repl"):
        daemon.ReplServer({}, port=port)
    with server, socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall(b"answer + 1\nprint('out')\n1 / 0\nexit()\n")
        with connection.makefile("r", encoding="utf-8") as stream:
            text = stream.read()
    assert all(word in text for word in ("43", "out", "ZeroDivisionError"))
    assert sys.stdout is stdout


def test_profiler_and_growth(caplog: pytest.LogCaptureFixture) -> None:
    """The first signal starts the profiler; the second one prints what it found, and forgets that."""
    caplog.set_level(logging.DEBUG, log_names.STACK_DUMP)
    calls = list[str]()
    statistics = SimpleNamespace(print_all=lambda out: out.write("fulfil 3 0.1 s\n"))
    yappi = SimpleNamespace(**dict.fromkeys(("get_func_stats", "get_thread_stats"), lambda: statistics))
    for name in ("start", "stop", "clear_stats"):
        setattr(yappi, name, lambda name=name: calls.append(name))
    objgraph = SimpleNamespace(show_growth=lambda limit, file: file.write("dict 7 +7\n"))
    tools = daemon.DebugTools({"yappi": yappi, "objgraph": objgraph}.get)

    def logged() -> list[str]:
        tools.begin()
        tools.join()
        found = [message.partition(" (yappi);")[0] for message in caplog.messages]
        caplog.clear()
        return found

    growth = "Types with more objects than at the last signal:\ndict 7 +7\n"
    assert logged() == ["Started the profiler", growth]
    assert logged() == ["Stopped the profiler (yappi):\nfulfil 3 0.1 s\nfulfil 3 0.1 s\n", growth]
    assert calls == ["start", "stop", "clear_stats"]
    assert daemon.load_package("nodepool.no_such_package") is None
    assert daemon.load_package("nodepool.cmd.daemon") is daemon
