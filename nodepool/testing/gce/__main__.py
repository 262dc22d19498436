# SPDX-License-Identifier: Apache-2.0
"""``python -m nodepool.testing.gce``: the simulated project as a process, until SIGTERM or SIGINT."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from nodepool.testing.gce.settings import GceSettings
from nodepool.testing.gce.simulator import GceSimulator
from nodepool.testing.simulator.command import SimulatorCommand, end_signal


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs it; writes its address to stdout when it answers. Returns the exit code."""
    parser = SimulatorCommand("gce", __doc__)
    parser.add_argument("--key-file", type=Path, metavar="PATH", help="write the key of a service account")
    options = parser.parse_args(arguments)
    settings = GceSettings()
    parser.fill(settings, options.settings)
    with end_signal() as ended, GceSimulator(settings, options.seed, options.port) as simulator:
        if options.key_file:
            simulator.write_key_file(options.key_file)
        print(simulator.url, flush=True)
        ended.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
