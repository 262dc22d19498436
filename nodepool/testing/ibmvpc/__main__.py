# SPDX-License-Identifier: Apache-2.0
"""``python -m nodepool.testing.ibmvpc``: the simulated region as a process, until SIGTERM or SIGINT."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from nodepool.testing.ibmvpc.settings import IbmVpcSettings
from nodepool.testing.ibmvpc.simulator import IbmVpcSimulator
from nodepool.testing.simulator.command import SimulatorCommand, end_signal


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs it; writes its address to stdout when it answers. Returns the exit code."""
    parser = SimulatorCommand("ibmvpc", __doc__)
    parser.add_argument("--credentials-file", type=Path, metavar="PATH", help="write what credentials-file is to name")
    options = parser.parse_args(arguments)
    settings = IbmVpcSettings()
    parser.fill(settings, options.settings)
    with end_signal() as ended, IbmVpcSimulator(settings, options.seed, options.port) as simulator:
        if options.credentials_file:
            simulator.write_credentials(options.credentials_file)
        print(simulator.url, flush=True)
        ended.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
