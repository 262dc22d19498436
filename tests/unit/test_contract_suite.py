# SPDX-License-Identifier: Apache-2.0
"""The contract suite finds drivers that break the contract: the fake driver, broken in one place at a time."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tests.support.once import once_in_a_run

HEAD = """
import threading

import pytest

from nodepool.driver.fake import FakeDriver
from nodepool.driver.fake import provider as fake_handler
from nodepool.driver.fake.cloud import FakeCloud
from nodepool.driver.fake.config import FakeProviderConfig
from nodepool.driver.fake.provider import FakeRequestHandler
from nodepool.driver.fake.provider import FakeProvider
from nodepool.testing.contract import DriverContract


def start_thread():
    threading.Thread(target=threading.Event().wait, daemon=True).start()


class Config(FakeProviderConfig):
    pass


class Handler(FakeRequestHandler):
    pass


class Provider(FakeProvider):
    def __init__(self, config):
        super().__init__(config, Handler)


class Driver(FakeDriver):
    def getProviderConfig(self, provider):
        return Config(provider)

    def getProvider(self, provider_config):
        return Provider(provider_config)


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

#: What breaks -> (statements, with ``monkeypatch``; the test that must fail).
CASES = {
    "wrong name": ("Driver.name = 'other'", "test_driver_name"),
    "schema takes everything": ("Config.getSchema = lambda self: dict", "test_schema_refuses_unknown_keys"),
    "labels as a list": ("Config.getSupportedLabels = lambda self, pool=None: ['small']", "test_supported_labels"),
    "unequal after a reload": (
        "old = Config.load; Config.load = lambda self, new: (old(self, new), setattr(self, 'loaded', object()))",
        "test_equal_after_a_reload",
    ),
    "change not seen": ("Config.__eq__ = lambda self, other: True", "test_unequal_after_a_change"),
    "labels not informed": (
        "old = Config.load\n"
        "Config.load = lambda self, new: (old(self, new), [label.pools.clear() for label in new.labels.values()])",
        "test_load_tells_labels_their_pools",
    ),
    "thread before start": (
        "old = Provider.__init__; Provider.__init__ = lambda self, config: (old(self, config), start_thread())[0]",
        "test_nothing_runs_before_start",
    ),
    "thread left behind": (
        "old = Provider.start; Provider.start = lambda self, zk: (old(self, zk), start_thread())",
        "test_stop_more_than_once",
    ),
    "stop blocks": ("Provider.stop = lambda self: threading.Event().wait(4)", "test_stop_more_than_once"),
    "label by name only": ("Provider.labelReady = lambda self, name: name == 'small'", "test_label_ready"),
    "error labels not a list": ("Provider.errorLabels = lambda self: None", "test_error_labels"),
    "deletion raises": ("Provider.cleanupNode = lambda self, node_id: {}[node_id]", "test_delete_what_is_not_there"),
    "machine not deleted": (
        "Provider.cleanupNode = Provider.waitForNodeCleanup = lambda self, node_id: None",
        "test_life_of_a_node",
    ),
    "sweep deletes used nodes": (
        "Provider.cleanupLeakedResources = lambda self: [self.cloud.delete(i.id) for i in self.cloud.instances()]",
        "test_sweep",
    ),
    "leaks stay": ("Provider.cleanupLeakedResources = lambda self: None", "test_leaked_machine"),
    "no metadata": ("monkeypatch.setattr(fake_handler, 'NODE_KEY', 'other')", "test_list_nodes"),
    "launch not waited for": (
        "FakeCloud.get('nowhere').set(hang=True); Handler.launchesComplete = lambda self: True",
        "test_reuses_a_ready_node",
    ),
    "no address": (
        "monkeypatch.setattr(fake_handler.FakeLauncher, '_connect', lambda self, instance: None)",
        "test_life_of_a_node",
    ),
    "incomplete handler": ("Handler.__abstractmethods__ = frozenset({'launch'})", "test_handler"),
    "declines everything": ("Handler.getDeclinedReasons = lambda self: ['no']", "test_handler"),
    "ready nodes not reused": ("Handler.checkReusableNode = lambda self, node: False", "test_reuses_a_ready_node"),
    "zones differ": (
        "zones = iter('abcdef'); Handler.setNodeMetadata = lambda self, node: setattr(node, 'az', next(zones))",
        "test_two_nodes",
    ),
}


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
