# SPDX-License-Identifier: Apache-2.0
"""``python -m simulators.aws``: the simulated region as a process, until SIGTERM or SIGINT."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from simulators.aws.settings import AwsSettings
from simulators.aws.simulator import AwsSimulator
from simulators.base.command import SimulatorCommand


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs it; see `SimulatorCommand.run`."""
    parser = SimulatorCommand("aws", __doc__)
    parser.add_argument("--environment", action="store_true", help="write what AWS's programs need as shell commands")

    def begin(simulator: AwsSimulator, options: argparse.Namespace) -> None:
        if options.environment:
            for name, value in simulator.environment.items():
                print(f"export {name}={value}", flush=True)

    return parser.run(arguments, AwsSettings(), AwsSimulator, begin)


if __name__ == "__main__":
    sys.exit(main())
