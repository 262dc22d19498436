# SPDX-License-Identifier: Apache-2.0
"""``python -m tests.migration --seeds 1-10``: moves there and back; exit status 1 if any failed."""

from __future__ import annotations

import argparse
import json
import logging
import signal
import sys
import tempfile
from pathlib import Path

from tests.migration.run import run
from tests.support.released import NotInstalled, released_programs
from tests.support.seeds import seeds


def main() -> int:
    """Parses the arguments, runs, prints."""
    parser = argparse.ArgumentParser(prog="python -m tests.migration", description=__doc__)
    parser.add_argument("--seeds", type=seeds, default="1", help="for example 7, 1-10 or 4,5 (%(default)s)")
    parser.add_argument("--legacy", metavar="VENV", help="virtualenv of the released package")
    parser.add_argument("--directory", type=Path, help="where logs are kept (default: a new one)")
    options = parser.parse_args()
    try:
        released = released_programs(options.legacy)
    except NotInstalled as error:
        parser.error(str(error))
    # In order, so that the processes of the run end, too.
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(1))
    logging.basicConfig(level=logging.CRITICAL)
    parent = options.directory or Path(tempfile.mkdtemp(prefix="migration-"))
    failed = False
    for seed in options.seeds:
        directory = parent / f"seed-{seed}"
        directory.mkdir(parents=True)
        report = run(directory, seed, released)
        (directory / "report.json").write_text(json.dumps(report, indent=1), encoding="utf-8")
        short = {name: value for name, value in report.items() if name != "events"}
        print(json.dumps({**short, "report": str(directory / "report.json")}, indent=1), flush=True)
        failed = failed or bool(report["violations"])
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
