# SPDX-License-Identifier: Apache-2.0
"""``python -m nodepool.testing.openstack``: the simulator as a process, until SIGTERM or SIGINT."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from nodepool.testing.openstack.knobs import Knobs
from nodepool.testing.openstack.simulator import CLOUD_NAME, OpenStackSimulator
from nodepool.testing.simulator.command import SimulatorCommand, end_signal


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs it; writes its address to stdout when it answers. Returns the exit code."""
    parser = SimulatorCommand("openstack", __doc__)
    parser.add_argument("--clouds-yaml", metavar="FILE", help="write a clouds.yaml with this cloud")
    parser.add_argument("--cloud", default=CLOUD_NAME, metavar="NAME", help="its name there (%(default)s)")
    options = parser.parse_args(arguments)
    knobs = Knobs()
    parser.fill(knobs, options.settings)
    with end_signal() as ended, OpenStackSimulator(knobs, options.seed, options.port) as simulator:
        if options.clouds_yaml:
            simulator.write_clouds_yaml(options.clouds_yaml, options.cloud)
        print(simulator.url, flush=True)
        ended.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
