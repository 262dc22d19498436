# SPDX-License-Identifier: Apache-2.0
"""``python -m tests.chaos.images --seeds 1-5``: builders under faults; exit status 1 if a run failed."""

from __future__ import annotations

import argparse
import json
import logging
import signal
import sys
import tempfile
from pathlib import Path

from tests.chaos.images.image_run import ImageRun, ImageSettings
from tests.chaos.schedule import OF_IMAGE_RUNS, from_json, make_schedule
from tests.support.seeds import seeds


def main() -> int:
    """Parses the arguments, runs, prints."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.images", description=__doc__)
    there_are = ", ".join(OF_IMAGE_RUNS)
    parser.add_argument("--seeds", type=seeds, default="1", help="for example 7, 1-20 or 4,5 (%(default)s)")
    parser.add_argument("--seconds", type=float, default=300.0, help="time with faults (%(default)s)")
    parser.add_argument("--every", type=float, default=3.0, help="mean seconds between faults (%(default)s)")
    parser.add_argument("--kinds", default="", metavar="KIND,...", help=f"only these faults: {there_are}")
    parser.add_argument("--without", default="", metavar="KIND,...", help="the same, but for these faults")
    parser.add_argument("--patience", type=float, default=0.0, help="seconds to look on at what is left (%(default)s)")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="the faults of a printed report")
    parser.add_argument("--directory", type=Path, help="where logs are kept (default: a new one)")
    options = parser.parse_args()
    # In order, so that the processes of the run end, too.
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(1))
    # What Kazoo says of connections that are cut on purpose.
    logging.basicConfig(level=logging.CRITICAL)
    without = options.without.split(",")
    kinds = [kind for kind in options.kinds.split(",") if kind]
    parent = options.directory or Path(tempfile.mkdtemp(prefix="chaos-images-"))
    failed = False
    for seed in options.seeds:
        if options.replay:
            faults = from_json(json.loads(options.replay.read_text(encoding="utf-8"))["faults"])
        else:
            faults = make_schedule(seed, options.seconds, 2, kinds, options.every, run=OF_IMAGE_RUNS)
        faults = [fault for fault in faults if fault.kind not in without]
        directory = parent / f"seed-{seed}"
        directory.mkdir(parents=True)
        report = ImageRun(ImageSettings(seed, faults, patience=options.patience), directory).run()
        (directory / "report.json").write_text(json.dumps(report, indent=1), encoding="utf-8")
        short = {name: value for name, value in report.items() if name not in ("faults", "events")}
        print(json.dumps({**short, "report": str(directory / "report.json")}, indent=1), flush=True)
        failed = failed or bool(report["violations"])
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
