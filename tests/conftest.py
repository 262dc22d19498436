# SPDX-License-Identifier: Apache-2.0
"""Fixtures for all tests: a real ZooKeeper, a real sshd, launchers, and the check for leaked threads.

Nothing here imports Zuul: only tests/interop needs it.
"""

from __future__ import annotations

import functools
import gc
import os
import re
import threading
import time
import uuid
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Final

import pytest
from botocore.loaders import JSONFileLoader, Loader
from hypothesis import HealthCheck, settings

from nodepool.driver.fake.cloud import FakeCloud
from nodepool.driver.statemachine import instance
from nodepool.metrics.registry import shared_client
from tests.support.launcher import LauncherProcess
from tests.support.logging_state import kept_logging
from tests.support.manual_clock import kept_time
from tests.support.pool_znodes import PoolZnodes
from tests.support.sshd import SshServer
from tests.support.statsd_server import StatsdServer
from tests.support.workplace import Workplace
from tests.support.zookeeper import ZooKeeperServer

# While thousands of tests and modules come, there is nothing to collect; later they need not be looked through again.
gc.disable()

#: Files of a test, the newest ones; lines that tell of trouble, and lines of the end, of each.
FILES = 4
TROUBLE_LINES = 12
END_LINES = 6
#: A line that is longer is cut.
COLUMNS = 300
TROUBLE = re.compile(r"\b(WARNING|ERROR|CRITICAL)\b|Traceback|^\S*(Error|Exception)\b")


def log_ends(directory: Path) -> list[tuple[str, str]]:
    """Name and end of each of the newest log files below a directory; what is no trouble is left out before the end."""
    files = sorted((path for path in directory.rglob("*.log") if path.is_file()), key=lambda path: path.stat().st_mtime)
    return [(str(path.relative_to(directory)), _end(path)) for path in files[-FILES:]]


def _end(path: Path) -> str:
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    trouble = [line for line in lines[:-END_LINES] if TROUBLE.search(line)]
    return "\n".join(line[:COLUMNS] for line in [*trouble[-TROUBLE_LINES:], "...", *lines[-END_LINES:]])


#: Tests that fail now and then for a reason that is being looked for: node id without parameters -> what is known.
QUARANTINE: Final[dict[str, str]] = {}
MOST_IN_QUARANTINE: Final = 3

# How long an example takes says more about what else the machine does than about the code.
settings.register_profile("unhurried", settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int | None:
    """Processes for ``-n auto``; None: the environment says how many."""
    if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:
        return None
    # Two thirds of their time the tests wait: for a server, a process, an answer. Each process has its own ZooKeeper.
    return min(8, 2 * len(os.sched_getaffinity(0)))


def pytest_runtestloop() -> None:
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test in quarantine may fail."""
    if len(QUARANTINE) > MOST_IN_QUARANTINE:
        raise pytest.UsageError(f"{len(QUARANTINE)} tests are in quarantine: mend one first")
    for item in items:
        if reason := QUARANTINE.get(item.nodeid.partition("[")[0]):
            item.add_marker(pytest.mark.xfail(reason=reason, strict=False))


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Bytes are named by their argument. All processes must collect the same names, each compresses test data on its
    own, and what is compressed has the time in it.
    """
    return argname if isinstance(val, bytes) else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What failed is told with the ends of the logs of its daemons."""
    report = yield
    directory = getattr(item, "funcargs", {}).get("tmp_path")
    if report.failed and directory is not None:
        # JUnit files have what begins with these words, without the name behind them.
        report.sections += [(f"Captured log {name}", f"{name}:\n{text}") for name, text in log_ends(directory)]
    return report


@pytest.fixture(scope="session", autouse=True)
def _service_models() -> Iterator[None]:
    """Models of AWS's services are found and read once in a process: that takes half of the time of a short test."""
    read, names = JSONFileLoader.load_file, Loader.list_available_services
    known = functools.cache(lambda path: read(JSONFileLoader(), path))
    found = functools.cache(lambda kind: names(Loader(include_default_search_paths=True), kind))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(JSONFileLoader, "load_file", lambda _loader, path: known(path))
        patch.setattr(Loader, "list_available_services", lambda _loader, type_name: found(type_name))
        yield


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """A ZooKeeper for all tests of a process, with a plain and a TLS port. Use `chroot` to be alone in it."""
    server = ZooKeeperServer(tmp_path_factory.mktemp("zookeeper"))
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    """A real sshd for all tests of a process; each 127.x address is a host with its ``host_keys`` at its ``port``."""
    server = SshServer(tmp_path_factory.mktemp("sshd"))
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def new_chroot(zookeeper: ZooKeeperServer) -> Iterator[Callable[[], str]]:
    """Makes an empty chroot in ZooKeeper per call and returns its path."""
    root = PoolZnodes(zookeeper.plain_hosts())
    root.start()

    def make() -> str:
        # The session ends when the machine stands still for longer than its timeout.
        path: str = root.kazoo.retry(root.kazoo.create, "/test", sequence=True)
        return path

    yield make
    root.stop()


@pytest.fixture
def chroot(new_chroot: Callable[[], str]) -> str:
    """An empty chroot that only this test uses, e.g. ``/test0000000003``."""
    return new_chroot()


@pytest.fixture
def znodes(zookeeper: ZooKeeperServer, chroot: str) -> Iterator[PoolZnodes]:
    """Plain access to the test's chroot."""
    access = PoolZnodes(zookeeper.plain_hosts(chroot))
    access.start()
    yield access
    access.stop()


@pytest.fixture
def workplace(tmp_path: Path, zookeeper: ZooKeeperServer, chroot: str, znodes: PoolZnodes) -> Iterator[Workplace]:
    """Starts launchers in the test's chroot and ends them.

    A traceback in a launcher's log fails the test, unless the test took it into account with
    ``launcher.expected_tracebacks = True``.
    """
    place = Workplace(tmp_path, zookeeper, chroot, znodes)
    yield place
    place.stop()
    noisy = [launcher for launcher in place.launchers if not launcher.expected_tracebacks and launcher.tracebacks()]
    assert not noisy, "\n".join(LauncherProcess.tracebacks(launcher) for launcher in noisy)


@pytest.fixture
def statsd(monkeypatch: pytest.MonkeyPatch) -> Iterator[StatsdServer]:
    """A server that the launchers of the test send to; set it up before they start."""
    with StatsdServer() as server:
        for name, value in server.environ.items():
            monkeypatch.setenv(name, value)
        shared_client.cache_clear()
        yield server
        client = shared_client()
        if client is not None:
            client.close()
        shared_client.cache_clear()


@pytest.fixture(autouse=True)
def _no_installation() -> Iterator[None]:
    """A process belongs to the installation of its ZooKeeper; here each test has another one."""
    yield
    instance.know_installation(())
    instance.look_for()


@pytest.fixture(autouse=True)
def _kept_time() -> Iterator[None]:
    """A clock of a test rules until that ends."""
    with kept_time():
        yield


@pytest.fixture(autouse=True)
def _no_leaked_threads() -> Iterator[None]:
    """Fails a test that leaves threads behind. Set up before and checked after its other fixtures."""
    before = set(threading.enumerate())
    yield
    new = set(threading.enumerate()) - before
    # One that was asked to stop may need a moment.
    deadline = time.monotonic() + 5.0
    for thread in new:
        thread.join(max(0.0, deadline - time.monotonic()))
    leaked = [repr(thread) for thread in new if thread.is_alive()]
    assert not leaked, f"threads left behind: {', '.join(leaked)}"


@pytest.fixture
def clean_logging() -> Iterator[None]:
    """For tests that configure logging, as commands do: puts back what it was, because later tests read log lines."""
    with kept_logging():
        yield


@pytest.fixture
def cloud_name() -> str:
    """A fake cloud that only this test uses."""
    return f"cloud-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def cloud(cloud_name: str) -> Iterator[FakeCloud]:
    yield FakeCloud.get(cloud_name)
    FakeCloud.forget(cloud_name)
