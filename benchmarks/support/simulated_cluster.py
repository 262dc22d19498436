# SPDX-License-Identifier: Apache-2.0
"""The simulated cluster of Kubernetes as a process of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.support.control_plane import KUBECONFIG_VARIABLE
from benchmarks.support.environment import environment_with
from benchmarks.support.simulator_process import simulator_process
from simulators.kubernetes import KubernetesSimulatorClient


@contextmanager
def simulated_cluster(directory: Path, settings: dict[str, Any]) -> Iterator[KubernetesSimulatorClient]:
    """Starts it and tells launchers, which inherit the environment, where it is. The process ends with the block.

    :param settings: as `simulators.kubernetes.KubernetesSettings`.
    """
    kubeconfig = str(directory / "kubeconfig")
    options = ["--kubeconfig", kubeconfig]
    with (
        simulator_process("simulators.kubernetes", KubernetesSimulatorClient, directory, settings, options) as client,
        environment_with({KUBECONFIG_VARIABLE: kubeconfig}),
    ):
        yield client
