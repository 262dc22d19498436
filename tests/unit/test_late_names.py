# SPDX-License-Identifier: Apache-2.0
"""Modules and names that drivers written for 11.0.0 import are there, and cost nothing until then."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

GUIDE = Path(__file__).parents[2] / "doc" / "source" / "drivers" / "released" / "index.rst"
#: Module of 11.0.0 -> its names that drivers import.
NAMES = {
    "nodepool.stats": "StatsReporter get_client normalize_statsd_name",
    "nodepool.nodeutils": "nodescan iterate_timeout set_node_ip Timer Attributes ITERATE_INTERVAL",
    "nodepool.driver.utils_k8s": "get_client",
    "nodepool.provider_manager": "ProviderManager get_provider",
    "nodepool.model_api": "MODEL_API",
    "nodepool.zk.exceptions": "LockException NoClientException NodepoolZooKeeperException",
    "nodepool.config": "as_list loadConfig get_provider_config Config Label DiskImage",
    "nodepool.zk": "ZooKeeperClient ZooKeeperBase",
    "nodepool.zk.components": "COMPONENT_REGISTRY",
    "nodepool.version": "version_info",
    "nodepool.driver": "LabelRecorder DriverConfig Driver Provider ProviderConfig ConfigPool NodeRequestHandler",
    "nodepool.driver.utils": "Segment RateLimitInstance MAX_QUOTA_AGE NodeLauncher NodeDeleter QuotaSupport",
    "nodepool.driver.statemachine": (
        "StateMachineNodeLauncher StateMachineNodeDeleter NodescanRequest NodescanWorker StateMachineProvider Adapter"
    ),
}


@pytest.mark.parametrize("module", NAMES)
def test_names_are_there(module: str) -> None:
    found = importlib.import_module(module)
    for name in NAMES[module].split():
        assert getattr(found, name) is getattr(found, name)


@pytest.mark.parametrize("module", NAMES)
def test_names_are_documented(module: str) -> None:
    """The guide promises them (doc/source/drivers/released/index.rst)."""
    text = GUIDE.read_text(encoding="utf-8")
    start = text.index(f"   * - ``{module}``\n")
    row = text[start : text.find("\n   * - ", start + 1)]
    assert [name for name in NAMES[module].split() if f"``{name}``" not in row] == []


@pytest.mark.parametrize("module", NAMES)
def test_others_are_not(module: str) -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        importlib.import_module(module).no_such_name  # noqa: B018


def test_commands_do_not_import_them() -> None:
    """A start of the commands and of the launcher costs nothing for it."""
    code = (
        "import sys, nodepool.cmd.cli, nodepool.cmd.launcher, nodepool.launcher.supervisor, nodepool.driver.static;"
        "print([name for name in sys.modules if name.startswith('nodepool.compat')])"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
