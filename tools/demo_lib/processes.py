# SPDX-License-Identifier: Apache-2.0
"""Start programs, know whether they still run, and end them all, in the reverse order."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import shutil
import signal
import socket
import struct
import subprocess
import termios
import threading
from collections.abc import Sequence
from pathlib import Path

from demo_lib.errors import DemoError

#: Java reports SIGTERM, the signal that we send, as 143.
CODES_OF_AN_ORDERLY_END = (0, -signal.SIGTERM, 143)


class Process:
    """A program in the background whose output goes to a log file.

    It gets a session of its own, so that a Ctrl-C in the terminal reaches only the demonstration, which then
    stops everything in order; and it ends when the demonstration is killed.
    """

    def __init__(self, name: str, command: Sequence[str | Path], log: Path) -> None:
        self.name = name
        self.log = log
        die_with_us = ["setpriv", "--pdeathsig", "TERM", "--"] if shutil.which("setpriv") else []
        with log.open("ab") as output:
            try:
                self._process = subprocess.Popen(
                    [*die_with_us, *command],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            except OSError as error:
                raise DemoError(f"cannot start {name}: {error}") from error

    def check(self) -> None:
        """Does it still run? Raises DemoError with the end of its log when it does not."""
        code = self._process.poll()
        if code is not None:
            raise DemoError(f"{self.name} ended with exit code {code}. The end of {self.log}:\n{tail(self.log)}")

    def stop(self, grace_seconds: float = 45) -> int:
        """Ask it to end, and end it for good when it does not. Blocks. Returns its exit code."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(grace_seconds)
            except subprocess.TimeoutExpired:
                print(f"   {self.name} did not stop within {grace_seconds:.0f} s: killed")
                self._process.kill()
        return self._process.wait()


class Processes:
    """All programs of one demonstration."""

    def __init__(self) -> None:
        self._all: list[Process] = []

    def start(self, name: str, command: Sequence[str | Path], log: Path) -> Process:
        """Start one. Raises DemoError when the program cannot be run."""
        process = Process(name, command, log)
        self._all.append(process)
        return process

    def check(self) -> None:
        """Raises DemoError when one of them has ended."""
        for process in self._all:
            process.check()

    def stop_all(self) -> bool:
        """End all of them, the last one first. Blocks, with a bound for each. Returns False when one ended badly."""
        good = True
        while self._all:
            process = self._all.pop()
            code = process.stop()
            expected = code in CODES_OF_AN_ORDERLY_END
            good = good and expected
            print(f"   {process.name} ended" + ("" if expected else f" with exit code {code}"), flush=True)
        return good


def tail(path: Path, lines: int = 15) -> str:
    """The last lines of a log."""
    try:
        return "\n".join("    " + line for line in path.read_text(errors="replace").splitlines()[-lines:])
    except OSError as error:
        return f"    ({error})"


def find_program(name: str) -> str:
    """The path of a program, also from the places for administrators. Raises DemoError when there is none."""
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")
    if found is None:
        raise DemoError(f"the program {name} is not installed")
    return found


def run(command: Sequence[str | Path], timeout_seconds: float = 60) -> str:
    """Run a program to its end. Blocks. Returns its standard output; raises DemoError when it fails."""
    words = [str(word) for word in command]
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_seconds, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DemoError(f"{' '.join(words)}: {error}") from error
    if done.returncode != 0:
        raise DemoError(f"{' '.join(words)} failed, exit code {done.returncode}:\n{done.stderr.strip()}")
    return done.stdout


def run_on_terminal(command: Sequence[str | Path], columns: int, timeout_seconds: float = 60) -> str:
    """As `run`, on a terminal of this width; returns what stands on it, with its colours."""
    words = [str(word) for word in command]
    above, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 1000, columns, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    try:
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=terminal, stderr=terminal, start_new_session=True, env=environment
        )
    except OSError as error:
        os.close(above)
        raise DemoError(f"{' '.join(words)}: {error}") from error
    finally:
        os.close(terminal)
    killer = threading.Timer(timeout_seconds, process.kill)
    killer.start()
    written = b""
    # Linux answers EIO when no process has the terminal any more.
    with contextlib.suppress(OSError), open(above, "rb", buffering=0) as stream:
        while part := stream.read(65536):
            written += part
    code = process.wait()
    killer.cancel()
    killer.join()
    text = written.decode(errors="replace").replace("\r\n", "\n")
    if code != 0:
        raise DemoError(f"{' '.join(words)} failed, exit code {code}:\n{text.strip()}")
    return text


def free_port(addresses: Sequence[str]) -> int:
    """A TCP port that is free on every one of these addresses of this machine. Raises DemoError."""
    for _ in range(50):
        sockets: list[socket.socket] = []
        try:
            port = 0
            for address in addresses:
                listener = socket.socket()
                sockets.append(listener)
                listener.bind((address, port))
                port = listener.getsockname()[1]
            return port
        except OSError:
            continue
        finally:
            for listener in sockets:
                listener.close()
    raise DemoError(f"found no free port on {', '.join(addresses)}")
