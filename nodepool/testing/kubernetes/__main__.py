# SPDX-License-Identifier: Apache-2.0
"""``python -m nodepool.testing.kubernetes``: the simulator as a process, until SIGTERM or SIGINT."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from nodepool.testing.kubernetes.settings import KubernetesSettings
from nodepool.testing.kubernetes.simulator import KubernetesSimulator
from nodepool.testing.simulator.command import SimulatorCommand, end_signal


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs it; writes its address to stdout when it answers. Returns the exit code."""
    parser = SimulatorCommand("kubernetes", __doc__)
    parser.add_argument("--kubeconfig", metavar="FILE", help="write a kubeconfig for this cluster")
    options = parser.parse_args(arguments)
    settings = KubernetesSettings()
    parser.fill(settings, options.settings)
    with end_signal() as ended, KubernetesSimulator(settings, options.seed, options.port) as simulator:
        if options.kubeconfig:
            simulator.write_kubeconfig(options.kubeconfig)
        print(simulator.url, flush=True)
        ended.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
