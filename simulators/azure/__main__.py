# SPDX-License-Identifier: Apache-2.0
"""``python -m simulators.azure``: the simulated subscription as a process, until SIGTERM or SIGINT."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from simulators.azure.settings import AzureSettings
from simulators.azure.simulator import AzureSimulator
from simulators.base.command import SimulatorCommand


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs it; see `SimulatorCommand.run`."""
    parser = SimulatorCommand("azure", __doc__)
    parser.add_argument("--auth-file", type=Path, metavar="PATH", help="write what auth-path leads to")

    def begin(simulator: AzureSimulator, options: argparse.Namespace) -> None:
        if options.auth_file:
            simulator.write_auth_file(options.auth_file)

    return parser.run(arguments, AzureSettings(), AzureSimulator, begin)


if __name__ == "__main__":
    sys.exit(main())
