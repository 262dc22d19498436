# SPDX-License-Identifier: Apache-2.0
"""``python -m nodepool.testing.kubernetes``: the simulator as a process, until SIGTERM or SIGINT."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
from collections.abc import Sequence

from nodepool.testing.kubernetes.settings import KubernetesSettings
from nodepool.testing.kubernetes.simulator import KubernetesSimulator


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs it; writes its address to stdout when it answers. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m nodepool.testing.kubernetes", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="on 127.0.0.1; default: a free one")
    parser.add_argument("--kubeconfig", metavar="FILE", help="write a kubeconfig for this cluster")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--knobs", default="{}", metavar="JSON", help='settings, for example {"start_seconds": [1, 3]}')
    options = parser.parse_args(arguments)
    settings = KubernetesSettings()
    try:
        settings.update(json.loads(options.knobs))
    except ValueError as error:
        parser.error(f"--knobs: {error}")
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: ended.set())
    with KubernetesSimulator(settings, options.seed, options.port) as simulator:
        if options.kubeconfig:
            simulator.write_kubeconfig(options.kubeconfig)
        print(simulator.url, flush=True)
        ended.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
