# SPDX-License-Identifier: Apache-2.0
"""``nodepool-builder``: the command line is complete, the image builder itself is not part of this release."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Final

from nodepool.cmd import app, daemon

PROG: Final = "nodepool-builder"
PIDFILE: Final = "/var/run/nodepool/nodepool-builder.pid"


def _count(value: str) -> int:
    number = int(value)
    if number < 0:
        raise ValueError
    return number


def make_parser() -> argparse.ArgumentParser:
    """The command line of the builder."""
    parser = app.make_parser(
        PROG, "Builds and uploads images. This release has no builder yet: the command only says so."
    )
    daemon.add_options(parser, PIDFILE)
    parser.add_argument(
        "--build-workers", type=_count, default=1, metavar="N", help="parallel builds (default: %(default)s)"
    )
    parser.add_argument(
        "--upload-workers", type=_count, default=4, metavar="N", help="parallel uploads (default: %(default)s)"
    )
    parser.add_argument("--repl", action="store_true", help="serve a Python console on localhost:3000, for debugging")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    make_parser().parse_args(argv)
    return app.run(PROG, _refuse)


def _refuse() -> int:
    raise app.CommandError(f"{PROG}: this release has no image builder yet; keep the nodepool-builder that you have")


if __name__ == "__main__":
    sys.exit(main())
