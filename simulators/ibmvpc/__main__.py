# SPDX-License-Identifier: Apache-2.0
"""``python -m simulators.ibmvpc``: the simulated region as a process, until SIGTERM or SIGINT."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from simulators.base.command import SimulatorCommand
from simulators.ibmvpc.settings import IbmVpcSettings
from simulators.ibmvpc.simulator import IbmVpcSimulator


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs it; see `SimulatorCommand.run`."""
    parser = SimulatorCommand("ibmvpc", __doc__)
    parser.add_argument("--credentials-file", type=Path, metavar="PATH", help="write what credentials-file is to name")

    def begin(simulator: IbmVpcSimulator, options: argparse.Namespace) -> None:
        if options.credentials_file:
            simulator.write_credentials(options.credentials_file)

    return parser.run(arguments, IbmVpcSettings(), IbmVpcSimulator, begin)


if __name__ == "__main__":
    sys.exit(main())
