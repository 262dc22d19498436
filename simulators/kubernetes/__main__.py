# SPDX-License-Identifier: Apache-2.0
"""``python -m simulators.kubernetes``: the simulator as a process, until SIGTERM or SIGINT."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from simulators.base.command import SimulatorCommand
from simulators.kubernetes.settings import KubernetesSettings
from simulators.kubernetes.simulator import KubernetesSimulator


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs it; see `SimulatorCommand.run`."""
    parser = SimulatorCommand("kubernetes", __doc__)
    parser.add_argument("--kubeconfig", metavar="FILE", help="write a kubeconfig for this cluster")

    def begin(simulator: KubernetesSimulator, options: argparse.Namespace) -> None:
        if options.kubeconfig:
            simulator.write_kubeconfig(options.kubeconfig)

    return parser.run(arguments, KubernetesSettings(), KubernetesSimulator, begin)


if __name__ == "__main__":
    sys.exit(main())
