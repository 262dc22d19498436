# SPDX-License-Identifier: Apache-2.0
"""``python -m simulators.gce``: the simulated project as a process, until SIGTERM or SIGINT."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from simulators.base.command import SimulatorCommand
from simulators.gce.settings import GceSettings
from simulators.gce.simulator import GceSimulator


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs it; see `SimulatorCommand.run`."""
    parser = SimulatorCommand("gce", __doc__)
    parser.add_argument("--key-file", type=Path, metavar="PATH", help="write the key of a service account")

    def begin(simulator: GceSimulator, options: argparse.Namespace) -> None:
        if options.key_file:
            simulator.write_key_file(options.key_file)

    return parser.run(arguments, GceSettings(), GceSimulator, begin)


if __name__ == "__main__":
    sys.exit(main())
