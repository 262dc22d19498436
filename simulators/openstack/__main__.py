# SPDX-License-Identifier: Apache-2.0
"""``python -m simulators.openstack``: the simulator as a process, until SIGTERM or SIGINT."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from simulators.base.command import SimulatorCommand
from simulators.openstack.knobs import Knobs
from simulators.openstack.simulator import CLOUD_NAME, OpenStackSimulator


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs it; see `SimulatorCommand.run`."""
    parser = SimulatorCommand("openstack", __doc__)
    parser.add_argument("--clouds-yaml", metavar="FILE", help="write a clouds.yaml with this cloud")
    parser.add_argument("--cloud", default=CLOUD_NAME, metavar="NAME", help="its name there (%(default)s)")

    def begin(simulator: OpenStackSimulator, options: argparse.Namespace) -> None:
        if options.clouds_yaml:
            simulator.write_clouds_yaml(options.clouds_yaml, options.cloud)

    return parser.run(arguments, Knobs(), OpenStackSimulator, begin)


if __name__ == "__main__":
    sys.exit(main())
