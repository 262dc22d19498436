# SPDX-License-Identifier: Apache-2.0
"""``python -m nodepool.testing.azure``: the simulated subscription as a process, until SIGTERM or SIGINT."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from nodepool.testing.azure.settings import AzureSettings
from nodepool.testing.azure.simulator import AzureSimulator
from nodepool.testing.simulator.command import SimulatorCommand, end_signal


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs it; writes its address to stdout when it answers. Returns the exit code."""
    parser = SimulatorCommand("azure", __doc__)
    parser.add_argument("--auth-file", type=Path, metavar="PATH", help="write what auth-path leads to")
    options = parser.parse_args(arguments)
    settings = AzureSettings()
    parser.fill(settings, options.settings)
    with end_signal() as ended, AzureSimulator(settings, options.seed, options.port) as simulator:
        if options.auth_file:
            simulator.write_auth_file(options.auth_file)
        print(simulator.url, flush=True)
        ended.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
