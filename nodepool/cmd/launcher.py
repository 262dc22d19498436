# SPDX-License-Identifier: Apache-2.0
"""``nodepool-launcher``: serves node requests (reference/commands 3 and 4).

Everything but the handling of signals is imported by functions, so that a signal finds a handler from the start.
"""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING, Final

from nodepool.cmd import exit_at_once

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

PROG: Final = "nodepool-launcher"
PIDFILE: Final = "/var/run/nodepool/nodepool.pid"
LOGFILE: Final = "/var/log/nodepool/nodepool.log"


def make_parser() -> argparse.ArgumentParser:
    """The command line of the launcher."""
    from nodepool.cmd import app, daemon

    parser = app.make_parser(PROG, "Serves node requests of Zuul. Goes into the background unless -d or -f is given.")
    daemon.add_options(parser, PIDFILE)
    parser.add_argument("--no-webapp", action="store_true", help="do not start the web server")
    parser.add_argument(
        "--drain",
        action="store_true",
        help="after SIGTERM take nothing new, finish what is being served, and end then; a second one ends it at once",
    )
    return parser


def serve(options: argparse.Namespace) -> int:
    """Run the launcher until a signal ends it; returns the exit status. Raises ConfigError."""
    from nodepool.cmd.daemon import run_service
    from nodepool.launcher.supervisor import NodePool
    from nodepool.web.server import launcher_part

    nodepool = NodePool(options.config, options.secure, () if options.no_webapp else [launcher_part])

    def drain(number: int) -> bool:
        return options.drain and number == signal.SIGTERM and nodepool.drain("SIGTERM")

    return run_service(nodepool, "nodepool" if options.repl else None, drain)


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    with exit_at_once():
        from nodepool.cmd import daemon

        return daemon.main(PROG, make_parser().parse_args(argv), LOGFILE, serve)


if __name__ == "__main__":
    sys.exit(main())
