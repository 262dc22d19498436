# SPDX-License-Identifier: Apache-2.0
"""``python -m tests.chaos --seeds 1-5``: runs under faults; one JSON object a run, exit status 1 if any failed."""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import sys
import tempfile
from pathlib import Path

from tests.chaos.run import WORLDS, Settings, run
from tests.chaos.schedule import OF_LAUNCHER_RUNS, from_json, make_arrivals, make_schedule
from tests.chaos.world import Limits
from tests.support.launcher import COMMAND_VARIABLE
from tests.support.seeds import seeds


def main() -> int:
    """Parses the arguments, runs, prints."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seeds", type=seeds, default="1", help="for example 7, 1-20 or 4,5 (%(default)s)")
    parser.add_argument("--seconds", type=float, default=60.0, help="time with faults (%(default)s)")
    parser.add_argument("--every", type=float, default=1.5, help="mean seconds between faults (%(default)s)")
    parser.add_argument("--launchers", type=int, default=3, help="(%(default)s)")
    parser.add_argument("--jobs", type=int, default=20, help="jobs at once (%(default)s)")
    parser.add_argument("--requests", type=int, default=0, help="so many, spread over the faults (0: without end)")
    parser.add_argument("--limit", type=int, default=Limits.servers, help="servers of the first cloud (%(default)s)")
    parser.add_argument("--cloud", choices=sorted(WORLDS), default="openstack", help="(%(default)s)")
    parser.add_argument("--zookeepers", type=int, default=1, help="3: an ensemble, and its faults (%(default)s)")
    parser.add_argument(
        "--kinds", default="", metavar="KIND,...", help=f"only these faults: {', '.join(OF_LAUNCHER_RUNS)}"
    )
    parser.add_argument("--without", default="", metavar="KIND,...", help="the same, but for these faults")
    parser.add_argument(
        "--launcher", metavar="COMMAND", help="another launcher, e.g. the released one; without ``clock``"
    )
    parser.add_argument("--patience", type=float, default=0.0, help="seconds to look on at what is left (%(default)s)")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="the faults of a printed report")
    parser.add_argument("--directory", type=Path, help="where logs are kept (default: a new one)")
    options = parser.parse_args()
    # In order, so that the processes of the run end, too.
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(1))
    # What Kazoo and Zuul say of connections that are cut on purpose.
    logging.basicConfig(level=logging.CRITICAL)
    without = options.without.split(",")
    if options.launcher:
        os.environ[COMMAND_VARIABLE] = options.launcher
        without.append("clock")
    kinds = [kind for kind in options.kinds.split(",") if kind]
    parent = options.directory or Path(tempfile.mkdtemp(prefix="chaos-"))
    failed = False
    for seed in options.seeds:
        if options.replay:
            before = json.loads(options.replay.read_text(encoding="utf-8"))
            faults, zookeepers = from_json(before["faults"]), before.get("zookeepers", 1)
        else:
            zookeepers = options.zookeepers
            faults = make_schedule(seed, options.seconds, options.launchers, kinds, options.every, zookeepers)
        faults = [fault for fault in faults if fault.kind not in without]
        directory = parent / f"seed-{seed}"
        directory.mkdir(parents=True)
        settings = Settings(
            seed,
            faults,
            options.launchers,
            options.jobs,
            Limits.of_servers(options.limit),
            zookeepers,
            options.patience,
            make_arrivals(seed, options.requests, max((fault.end for fault in faults), default=0.0)),
            options.cloud,
        )
        report = run(settings, directory)
        (directory / "report.json").write_text(json.dumps(report, indent=1), encoding="utf-8")
        short = {name: value for name, value in report.items() if name not in ("faults", "events")}
        print(json.dumps({**short, "report": str(directory / "report.json")}, indent=1), flush=True)
        failed = failed or bool(report["violations"])
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
