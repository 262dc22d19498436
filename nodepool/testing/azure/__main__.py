# SPDX-License-Identifier: Apache-2.0
"""``python -m nodepool.testing.azure``: the simulated subscription as a process, until SIGTERM or SIGINT."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from nodepool.testing.azure.settings import AzureSettings
from nodepool.testing.azure.simulator import AzureSimulator


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs it; writes its address to stdout when it answers. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m nodepool.testing.azure", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="on 127.0.0.1; default: a free one")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--settings", default="{}", metavar="JSON", help='for example {"boot_seconds": [1, 3]}')
    parser.add_argument("--auth-file", type=Path, metavar="PATH", help="write what auth-path leads to")
    options = parser.parse_args(arguments)
    settings = AzureSettings()
    try:
        settings.update(json.loads(options.settings))
    except ValueError as error:
        parser.error(f"--settings: {error}")
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: ended.set())
    with AzureSimulator(settings, options.seed, options.port) as simulator:
        if options.auth_file:
            simulator.write_auth_file(options.auth_file)
        print(simulator.url, flush=True)
        ended.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
