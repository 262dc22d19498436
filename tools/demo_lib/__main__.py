# SPDX-License-Identifier: Apache-2.0
"""Arguments, signals, and leaving nothing behind."""

from __future__ import annotations

import argparse
import logging
import shutil
import signal
import sys
import sysconfig
import tempfile
import threading
from pathlib import Path
from types import FrameType

from kazoo.exceptions import KazooException

from demo_lib.errors import DemoError
from demo_lib.story import BUILD_PART, HOSTS_PART, PARTS, Demo

SAMPLE = Path(__file__).resolve().parents[2] / "etc" / "demo.yaml"

DESCRIPTION = """\
Run a complete Nodepool on this machine: a private ZooKeeper with TLS, an SSH server that answers for four static hosts,
a simulated OpenStack, nodepool-launcher, nodepool-web with its pages, and a client that asks for nodes, uses them and
returns them, as Zuul does. Then example jobs come and go until Ctrl-C, which ends and removes everything. All of it
listens on loopback only, on free ports. Without --hosts, --cloud and --build it shows what --hosts and --build show."""

HELP = {
    "hosts": "show static hosts: two are asked for, used, returned and ready again",
    "cloud": "show a cloud: launches, a quota that is full, an outage, and what 'nodepool explain' says of them",
    "build": "show images: one is built (without diskimage-builder) and uploaded, and a node boots from it",
}


class Interrupted(Exception):
    """A signal asked us to end."""


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("tools/demo", description=DESCRIPTION)
    for part in PARTS:
        parser.add_argument(f"--{part}", dest="parts", action="append_const", const=part, help=HELP[part])
    parser.add_argument("--once", action="store_true", help="end when all is shown")
    parser.add_argument("--directory", type=Path, help="keep everything, also the logs, in this new directory")
    parser.add_argument("--programs", type=Path, help="take nodepool and its daemons from this directory")
    return parser.parse_args(arguments)


def make_directory(wanted: Path | None) -> Path:
    """The directory for everything, which no other user can read. Raises DemoError."""
    if wanted is None:
        return Path(tempfile.mkdtemp(prefix="nodepool-demo-"))
    try:
        wanted.mkdir(mode=0o700, parents=True)
    except OSError as error:
        raise DemoError(f"cannot make {wanted}: {error.strerror}; name a directory that does not exist yet") from error
    return wanted.resolve()


def main(arguments: list[str] | None = None) -> int:
    """Run it. Returns the exit code: 0, 1 when something failed, 130 when it was interrupted half-way."""
    options = parse(arguments)
    # Kazoo logs every attempt while ZooKeeper starts; what matters becomes a DemoError.
    logging.getLogger("kazoo").addHandler(logging.NullHandler())
    try:
        directory = make_directory(options.directory)
    except DemoError as error:
        print(f"tools/demo: {error}", file=sys.stderr)
        return 1
    print(f"Everything, the logs too, is in {directory}", flush=True)
    parts = options.parts or [HOSTS_PART, BUILD_PART]
    demo = Demo(directory, options.programs or Path(sysconfig.get_path("scripts")), SAMPLE, parts)
    code = run(demo, options.once)
    keep = options.directory is not None or code == 1
    if not keep:
        shutil.rmtree(directory, ignore_errors=True)
    print(f"\nNothing is left running. {'Logs: ' + str(directory) if keep else 'The directory was removed.'}")
    return code


def run(demo: Demo, once: bool) -> int:
    """The story with its end. Blocks. Returns the exit code."""
    code = 0
    waiting = False
    stopped = threading.Event()

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        # A second signal, while everything is being stopped, must not leave half of it running.
        if not stopped.is_set():
            stopped.set()
            raise Interrupted

    try:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, interrupt)
        demo.run()
        waiting = True
        if not once:
            demo.stay(stopped)
    except Interrupted:
        # Ctrl-C is how the wait is meant to end.
        code = 0 if waiting else 130
    except DemoError as error:
        print(f"\ntools/demo: {error}", file=sys.stderr, flush=True)
        code = 1
    except KazooException as error:
        print(f"\ntools/demo: ZooKeeper: {type(error).__name__} {error}", file=sys.stderr, flush=True)
        code = 1
    finally:
        stopped.set()
        good = demo.close()
    return code if good else 1


if __name__ == "__main__":
    sys.exit(main())
