# SPDX-License-Identifier: Apache-2.0
"""The simulated cluster of Kubernetes as a process of its own."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.support.control_plane import KUBECONFIG_VARIABLE
from nodepool.testing.kubernetes import KubernetesSimulatorClient
from tests.support.ports import free_ports
from tests.support.process import ChildProcess
from tests.support.wait import wait_for

ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def simulated_cluster(directory: Path, settings: dict[str, Any]) -> Iterator[KubernetesSimulatorClient]:
    """Starts it and tells launchers, which inherit the environment, where it is. The process ends with the block.

    :param settings: as `nodepool.testing.kubernetes.KubernetesSettings`.
    """
    (port,) = free_ports(1)
    client = KubernetesSimulatorClient(f"http://127.0.0.1:{port}")
    kubeconfig = directory / "kubeconfig"
    options = ["--port", str(port), "--kubeconfig", str(kubeconfig), "--knobs", json.dumps(settings)]
    process = ChildProcess(
        [sys.executable, "-m", "nodepool.testing.kubernetes", *options], directory / "cluster.log", cwd=ROOT
    )
    process.start()
    try:
        wait_for("the simulator answers", lambda: client.url in process.log_text())
        os.environ[KUBECONFIG_VARIABLE] = str(kubeconfig)
        yield client
    finally:
        os.environ.pop(KUBECONFIG_VARIABLE, None)
        process.stop()
