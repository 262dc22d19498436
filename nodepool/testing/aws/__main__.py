# SPDX-License-Identifier: Apache-2.0
"""``python -m nodepool.testing.aws``: the simulated region as a process, until SIGTERM or SIGINT."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from nodepool.testing.aws.settings import AwsSettings
from nodepool.testing.aws.simulator import AwsSimulator
from nodepool.testing.simulator.command import SimulatorCommand, end_signal


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs it; writes its address to stdout when it answers. Returns the exit code."""
    parser = SimulatorCommand("aws", __doc__)
    parser.add_argument("--environment", action="store_true", help="write what AWS's programs need as shell commands")
    options = parser.parse_args(arguments)
    settings = AwsSettings()
    parser.fill(settings, options.settings)
    with end_signal() as ended, AwsSimulator(settings, options.seed, options.port) as simulator:
        print(simulator.url, flush=True)
        if options.environment:
            for name, value in simulator.environment.items():
                print(f"export {name}={value}", flush=True)
        ended.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
