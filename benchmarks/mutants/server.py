# SPDX-License-Identifier: Apache-2.0
"""Runs tests of the tree that is the working directory, each order in a process that is forked from this one.

It stands alone: the tree's own Python runs it, and the tree may be older than this file. The server has imported pytest
and every library that earlier orders needed, but nothing of the tree, so that a mutant costs its tests and little more.
An order is a line of JSON: ``{"tests": [...], "limit": seconds, "cpu": seconds}``. So is its answer:
``{"state": ..., "by": test}``.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import importlib.util
import json
import os
import resource
import select
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

import pytest

PR_SET_CHILD_SUBREAPER = 36
#: What has threads or a state of its own after its import, and cannot be forked.
NOT_BEFORE_FORK = ("grpc", "google", "opentelemetry", "openstack", "nodepool", "tests", "benchmarks", "simulators")


class Chosen:
    """Runs the chosen tests of the files that pytest collects; knows what failed first."""

    def __init__(self, tests: list[str]) -> None:
        self.tests = set(tests)
        self.failed = ""
        self.count = 0

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if not self.tests.isdisjoint((item.nodeid, item.nodeid.partition("::")[0]))]
        self.count = len(items)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.failed = self.failed or f"import for {report.nodeid}"

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed = self.failed or report.nodeid


def run_tests(tests: list[str], place: Path) -> None:
    """In the child: the outcome goes to a file, because the child may have any end."""
    chosen = Chosen(tests)
    # Libraries that are plugins as well are there already.
    quiet = "ignore::pytest.PytestAssertRewriteWarning"
    options = [
        "-W",
        quiet,
        "-x",
        "-q",
        "--tb=short",
        "-p",
        "no:randomly",
        "-p",
        "no:cacheprovider",
        f"--basetemp={place / 't'}",
    ]
    if importlib.util.find_spec("hypothesis"):
        options.append("--hypothesis-seed=0")
    code = pytest.main([*options, *dict.fromkeys(test.partition("::")[0] for test in tests)], plugins=[chosen])
    if code in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        answer = {"state": "passed", "by": ""}
    else:
        answer = {
            "state": "failed",
            "by": chosen.failed or f"exit {code.name if isinstance(code, pytest.ExitCode) else code}",
        }
    libraries = [name for name, module in list(sys.modules.items()) if is_library(name, module)]
    (place / "answer").write_text(json.dumps({**answer, "count": chosen.count, "libraries": libraries}))


def is_library(name: str, module: object) -> bool:
    origin = getattr(getattr(module, "__spec__", None), "origin", None)
    return (
        isinstance(origin, str)
        and origin.startswith((sys.prefix, sys.base_prefix))
        and not name.startswith(NOT_BEFORE_FORK)
    )


def end_descendants() -> None:
    """Daemons that a test left come to this process when their parent ends."""
    while children := Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
        for child in map(int, children):
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def obey(order: dict[str, Any], place: Path) -> dict[str, Any]:
    answer = place / "answer"
    answer.unlink(missing_ok=True)
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            # The machine may be busy: an endless loop is ended by the time that it had.
            resource.setrlimit(resource.RLIMIT_CPU, (order["cpu"], order["cpu"] + 5))
            run_tests(order["tests"], place)
        except BaseException:  # noqa: BLE001 (the process ends here, whatever it was)
            traceback.print_exc()
        finally:
            os._exit(0)
    poll = select.poll()
    ended = os.pidfd_open(pid)
    poll.register(ended, select.POLLIN)
    in_time = bool(poll.poll(order["limit"] * 1000))
    os.close(ended)
    os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    end_descendants()
    if not in_time or (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU):
        return {"state": "timeout", "by": "time limit", "count": 0}
    if not answer.exists():
        return {"state": "failed", "by": "end of the process", "count": 0}
    found: dict[str, Any] = json.loads(answer.read_text())
    for name in found.pop("libraries"):
        if name not in sys.modules:
            with contextlib.suppress(Exception):
                importlib.import_module(name)
    return found


def main() -> None:
    place = Path(sys.argv[1])
    os.nice(10)
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    log = os.open(place / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    for line in sys.stdin:
        answers.write(json.dumps(obey(json.loads(line), place)) + "\n")


if __name__ == "__main__":
    main()
