# SPDX-License-Identifier: Apache-2.0
"""``python -m nodepool.testing.openstack``: the simulator as a process, until SIGTERM or SIGINT."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
from collections.abc import Sequence

from nodepool.testing.openstack.knobs import Knobs
from nodepool.testing.openstack.simulator import CLOUD_NAME, OpenStackSimulator


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs it; writes its address to stdout when it answers. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m nodepool.testing.openstack", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="on 127.0.0.1; default: a free one")
    parser.add_argument("--clouds-yaml", metavar="FILE", help="write a clouds.yaml with this cloud")
    parser.add_argument("--cloud", default=CLOUD_NAME, metavar="NAME", help="its name there (%(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--knobs", default="{}", metavar="JSON", help='settings, for example {"boot_seconds": [1, 3]}')
    options = parser.parse_args(arguments)
    knobs = Knobs()
    try:
        knobs.update(json.loads(options.knobs))
    except ValueError as error:
        parser.error(f"--knobs: {error}")
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: ended.set())
    with OpenStackSimulator(knobs, options.seed, options.port) as simulator:
        if options.clouds_yaml:
            simulator.write_clouds_yaml(options.clouds_yaml, options.cloud)
        print(simulator.url, flush=True)
        ended.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
