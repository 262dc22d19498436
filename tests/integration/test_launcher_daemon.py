# SPDX-License-Identifier: Apache-2.0
"""``nodepool-launcher`` as a process: signals, background, systemd, mistakes (reference/commands 3 and 4)."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.launcher import OUR_COMMAND, ROOT
from tests.support.launcher_config import FakeProvider, StaticProvider, static_hosts, write_config
from tests.support.pool_znodes import REQUESTS, PoolZnodes
from tests.support.ports import free_ports
from tests.support.process import ChildProcess
from tests.support.wait import wait_for
from tests.support.workplace import Workplace
from tests.support.zookeeper import ZooKeeperServer

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


@pytest.fixture
def config(tmp_path: Path, zookeeper: ZooKeeperServer, chroot: str) -> Path:
    """A configuration without providers: enough for what a process does."""
    path = tmp_path / "nodepool.yaml"
    write_config(path, zookeeper, chroot, [])
    return path


@pytest.fixture
def pool_config(config: Path, zookeeper: ZooKeeperServer, chroot: str) -> Path:
    """A configuration with one pool."""
    write_config(config, zookeeper, chroot, [StaticProvider(static_hosts(1))])
    return config


class Foreground(ChildProcess):
    """The launcher in the foreground."""

    def __init__(self, config: Path, *options: str, **variables: str) -> None:
        command = [*OUR_COMMAND, "-c", str(config), "-f", "--no-webapp", *options]
        super().__init__(command, config.parent / "launcher.log", env={**ENVIRONMENT, **variables})

    def wait_ready(self) -> None:
        def ready() -> bool:
            assert self.running, f"the launcher ended:\n{self.log_text()}"
            return "nodepool.cmd.daemon: Ready" in self.log_text()

        wait_for("the launcher is ready", ready)


@pytest.fixture
def launcher(config: Path) -> Iterator[Foreground]:
    process = Foreground(config)
    yield process
    process.stop()


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*OUR_COMMAND, *arguments], env=ENVIRONMENT, cwd="/", capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
@pytest.mark.usefixtures("pool_config")
def test_signal_ends_it_in_order(launcher: Foreground, znodes: PoolZnodes, number: signal.Signals) -> None:
    """J-8: orderly stop: pools are unregistered, exit status 0, no traceback."""
    launcher.start()
    launcher.wait_ready()
    wait_for("the pool is registered", znodes.pools)
    launcher.send_signal(number)
    assert launcher.wait(45) == 0
    assert znodes.pools() == []
    assert "Traceback" not in launcher.log_text()


@pytest.fixture
def booting(config: Path, zookeeper: ZooKeeperServer, chroot: str, znodes: PoolZnodes) -> Iterator[Foreground]:
    """A launcher with ``--drain`` whose cloud needs a few seconds for a boot, in the middle of one."""
    write_config(config, zookeeper, chroot, [FakeProvider(["small"], settings={"boot-seconds": 4})])
    process = Foreground(config, "--drain")
    process.start()
    process.wait_ready()
    wait_for("the pool is registered", znodes.pools)
    znodes.submit(["small"])
    wait_for("it boots", lambda: [node["state"] for node in znodes.nodes().values()] == ["building"])
    yield process
    process.stop()


def states(znodes: PoolZnodes) -> list[str | None]:
    return [znodes.request_state(request_id) for request_id in znodes.children(REQUESTS)]


@pytest.mark.parametrize(
    ("numbers", "state"),
    [
        ((signal.SIGTERM,), "fulfilled"),
        ((signal.SIGTERM, signal.SIGTERM), "requested"),
        ((signal.SIGINT,), "requested"),
    ],
)
def test_drained_by_a_signal(
    booting: Foreground, znodes: PoolZnodes, numbers: tuple[signal.Signals, ...], state: str
) -> None:
    """MT-8: the boot is finished, then the process ends. A second SIGTERM, and SIGINT, give the request back."""
    booting.send_signal(numbers[0])
    if len(numbers) > 1:
        wait_for("it is drained", lambda: "finishing what is being served" in booting.log_text())
        booting.send_signal(numbers[1])
    assert booting.wait(60) == 0
    assert (states(znodes), znodes.pools()) == ([state], [])
    drained = "Drained: nothing is being served any more" in booting.log_text()
    assert drained is (state == "fulfilled")
    assert not drained or "Traceback" not in booting.log_text()


def test_stack_dump(launcher: Foreground) -> None:
    """SIGUSR2: the stacks of all threads in logger nodepool.stack_dump; the launcher goes on."""
    launcher.start()
    launcher.wait_ready()
    launcher.send_signal(signal.SIGUSR2)
    wait_for("the stacks", lambda: "DEBUG nodepool.stack_dump:" in launcher.log_text())
    wait_for("every thread", lambda: "MainThread" in launcher.log_text())
    assert launcher.running


def test_stops_without_zookeeper(config: Path, zookeeper: ZooKeeperServer) -> None:
    """It waits for ZooKeeper, and can be stopped meanwhile."""
    (port,) = free_ports(1)
    config.write_text(config.read_text(encoding="utf-8").replace(str(zookeeper.tls_port), str(port)), encoding="utf-8")
    launcher = Foreground(config)
    launcher.start()
    wait_for("it tries", lambda: "No connection to ZooKeeper" in launcher.log_text())
    assert launcher.stop(seconds=30) == 0


def test_systemd_protocol(config: Path, tmp_path: Path) -> None:
    """READY once it serves, then WATCHDOG; RELOADING and READY around a reload; STOPPING at the end."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(60)
        launcher = Foreground(config, NOTIFY_SOCKET=str(tmp_path / "notify"), WATCHDOG_USEC="2000000")
        launcher.start()
        try:
            assert systemd.recv(1000).startswith(b"READY=1")
            assert systemd.recv(1000) == b"WATCHDOG=1"
            assert systemd.recv(1000) == b"WATCHDOG=1"
            with config.open("a", encoding="utf-8") as file:
                file.write("max-hold-age: 60\n")
            wait_message(systemd, b"RELOADING=1")
            wait_message(systemd, b"READY=1\nSTATUS=serving")
            config.write_text("{", encoding="utf-8")
            wait_message(systemd, b"READY=1\nSTATUS=serving; the changed configuration file is refused")
        finally:
            launcher.stop()
        wait_message(systemd, b"STOPPING=1")


def wait_message(systemd: socket.socket, start: bytes) -> None:
    """Reads messages until one begins like this."""
    while not systemd.recv(1000).startswith(start):
        pass


@pytest.fixture
def pidfile(tmp_path: Path) -> Iterator[Path]:
    """A pid file whose daemon is ended with the test."""
    path = tmp_path / "nodepool.pid"
    yield path
    if path.exists():
        os.kill(int(path.read_text(encoding="ascii")), signal.SIGKILL)


def write_log_config(directory: Path) -> tuple[Path, Path]:
    text = (ROOT / "etc" / "logging.yaml").read_text(encoding="utf-8").replace("/var/log/nodepool", str(directory))
    (directory / "logging.yaml").write_text(text, encoding="utf-8")
    return directory / "logging.yaml", directory / "nodepool.log"


def test_background(pool_config: Path, pidfile: Path, tmp_path: Path, znodes: PoolZnodes) -> None:
    """Without -d and -f: into the background, with a pid file and paths that stay valid; SIGTERM ends it."""
    logging, log = write_log_config(tmp_path)
    options = ["-c", os.path.relpath(pool_config, "/"), "-p", os.path.relpath(pidfile, "/"), "-l", str(logging)]
    started = run(*options, "--no-webapp")
    assert (started.returncode, started.stdout, started.stderr) == (0, "", "")
    wait_for("the pid file", lambda: pidfile.read_text(encoding="ascii").strip())
    wait_for("the pool is registered", znodes.pools)
    # Logs are not for everybody; the number of the process is.
    assert log.stat().st_mode & 0o007 == 0
    assert pidfile.stat().st_mode & 0o444 == 0o444
    command = Path(f"/proc/{pidfile.read_text(encoding='ascii').strip()}/cmdline").read_bytes()
    assert [part.decode() for part in command.rstrip(b"\0").split(b"\0")][-len(options) - 1 :] == [
        *options,
        "--no-webapp",
    ]
    os.kill(int(pidfile.read_text(encoding="ascii")), signal.SIGTERM)
    wait_for("the daemon's end", lambda: not pidfile.exists())
    assert "Stopped" in log.read_text(encoding="utf-8")
    assert znodes.pools() == []


def test_bad_configuration_is_refused_before_the_background(config: Path, pidfile: Path, tmp_path: Path) -> None:
    """The messages of config-validate on the terminal, status 1, no daemon."""
    text = config.read_text(encoding="utf-8")
    config.write_text(f"{text}elements-dir: [1]\nmax-hold-age: soon\n", encoding="utf-8")
    logging, _ = write_log_config(tmp_path)
    refused = run("-c", str(config), "-p", str(pidfile), "-l", str(logging))
    assert refused.returncode == 1
    assert "elements-dir" in refused.stderr
    assert "max-hold-age" in refused.stderr
    assert refused.stderr.count(f"{config}:") == 2
    assert "Traceback" not in refused.stderr
    assert not pidfile.exists()


def test_wrong_files_in_the_foreground(config: Path) -> None:
    """reference/commands 7: a logging configuration that is missing is an error; so is a configuration that is none."""
    refused = run("-c", str(config), "-f", "-l", "/nonexistent/log.yaml")
    assert refused.returncode == 1
    assert refused.stderr.splitlines() == [
        "nodepool-launcher: /nonexistent/log.yaml: there is no such logging configuration file. Check the option -l."
    ]
    config.write_text("{", encoding="utf-8")
    refused = run("-c", str(config), "-f")
    assert (refused.returncode, f"{config}:" in refused.stderr) == (1, True)
    assert "Traceback" not in refused.stderr + refused.stdout


# -- the file system of the log is full: what is logged is lost, and nothing else


#: Each write to it fails with ENOSPC.
FULL = Path("/dev/full")


@pytest.mark.skipif(not FULL.exists(), reason="no /dev/full")
def test_full_disk(workplace: Workplace) -> None:
    """No thread ends because it cannot log; requests are served, nodes made anew, and the end is in order."""
    redirect = ["env", f"PYTHONPATH={ROOT}", "sh", "-c", f'exec "$@" >{FULL} 2>&1', "launcher"]
    static = StaticProvider(static_hosts(1))
    launcher = workplace.launch([static, FakeProvider(["made"])], command=[*redirect, *OUR_COMMAND])
    for label in ("small", "made", "small"):
        request = workplace.znodes.submit([label])
        workplace.znodes.fulfilled(request)
        workplace.znodes.use_and_return(request)
    workplace.wait_nodes(static)
    assert launcher.stop(signal.SIGTERM) == 0
    assert launcher.log_text() == ""
