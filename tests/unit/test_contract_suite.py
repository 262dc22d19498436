# SPDX-License-Identifier: Apache-2.0
"""The contract suite finds drivers that break the contract: the fake driver, broken in one place at a time."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import textwrap
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from tests.support.tables import rows

T = TypeVar("T")


def once_in_a_run(factory: pytest.TempPathFactory, name: str, make: Callable[[], T]) -> T:
    """The result of ``make``, which is called by the first process that asks; blocks until it has one.

    :param name: of a file, unique. :param make: its result must survive JSON. What it raises is raised, and the next
        process that asks tries again.
    """
    base = factory.getbasetemp()
    # A process of pytest-xdist has a directory of its own in that of the run.
    directory = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    with (directory / name).open("a+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        text = file.read()
        if not text:
            text = json.dumps(make())
            file.write(text)
        made: T = json.loads(text)
        return made


HEAD = """
import threading

import pytest

from nodepool.driver.fake import FakeDriver
import nodepool.driver.fake as fake_handler
from nodepool.driver.fake.cloud import FakeCloud
from nodepool.driver.fake import FakeProviderConfig
from nodepool.driver.statemachine import StateMachineHandler
from nodepool.driver.fake import FakeProvider
from nodepool.testing.contract import DriverContract


def start_thread():
    threading.Thread(target=threading.Event().wait, daemon=True).start()


class Config(FakeProviderConfig):
    pass


class Handler(StateMachineHandler):
    pass


class Provider(FakeProvider):
    handler_class = Handler


class Driver(FakeDriver):
    def getProviderConfig(self, provider):
        return Config(provider)

    def getProvider(self, provider_config):
        return Provider(self.getAdapter(provider_config), provider_config)


class TestBroken(DriverContract):
    label = "small"
    node_seconds = 2.0
    call_seconds = 2.0

    @pytest.fixture(autouse=True)
    def _cloud(self):
        yield
        FakeCloud.forget("nowhere")

    def make_driver(self):
        return Driver()

    def provider_section(self):
        pool = {"name": "main", "labels": [{"name": "small"}]}
        return {"name": "nowhere", "driver": "fake", "pools": [pool]}
"""

ROWS = rows(__file__, "test_breakage_is_found")
CASES: dict[str, tuple[str, str]] = {name: (broken, test) for name, broken, test in ROWS.args[1]}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Name of the case -> passed, failure or error."""
    return once_in_a_run(tmp_path_factory, "broken-drivers", lambda: run_cases(tmp_path_factory.mktemp("broken")))


def run_cases(directory: Path) -> dict[str, str]:
    """Runs pytest once for all, as the author of a driver would."""
    report = directory / "report.xml"
    tests = []
    for number, (statements, test) in enumerate(CASES.values()):
        module = directory / f"test_broken_{number}.py"
        breakage = textwrap.indent(statements, "    ")
        module.write_text(
            f"{HEAD}\n\n@pytest.fixture(autouse=True)\ndef _break(monkeypatch):\n{breakage}\n", encoding="utf-8"
        )
        tests.append(f"{module}::TestBroken::{test}")
    (directory / "test_good.py").write_text(HEAD, encoding="utf-8")
    tests.append(str(directory / "test_good.py"))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", *tests]
    result = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=150, check=False)
    assert report.exists(), f"{result.stdout}\n{result.stderr}"
    names = {f"test_broken_{number}.TestBroken": name for number, name in enumerate(CASES)}
    found: dict[str, str] = {}
    for case in ET.parse(report).iter("testcase"):
        name = names.get(case.get("classname", ""), "good")
        bad = [child.tag for child in case if child.tag in ("failure", "error")]
        found[name] = bad[0] if bad else found.get(name, "passed")
    return found


@pytest.mark.parametrize("name", [*CASES, "good"])
def test_breakage_is_found(name: str, outcomes: dict[str, str]) -> None:
    """A driver that breaks one rule fails the test of that rule; the same driver, not broken, passes all of it."""
    assert (outcomes[name] == "passed") == (name == "good")
