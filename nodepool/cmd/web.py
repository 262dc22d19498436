# SPDX-License-Identifier: Apache-2.0
"""``nodepool-web``: the web pages in a process of their own (reference/commands 3 and 4).

Everything but the handling of signals is imported by functions, so that a signal finds a handler from the start.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from nodepool.cmd import exit_at_once

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

PROG: Final = "nodepool-web"
PIDFILE: Final = "/var/run/nodepool/nodepool-web.pid"
LOGFILE: Final = "/var/log/nodepool/nodepool-web.log"


def make_parser() -> argparse.ArgumentParser:
    """The command line of the web daemon."""
    from nodepool.cmd import app, daemon

    parser = app.make_parser(
        PROG, "Serves the web pages, the API and logins. Goes into the background unless -d or -f is given."
    )
    daemon.add_options(parser, PIDFILE, repl=False)
    return parser


def serve(options: argparse.Namespace) -> int:
    """Run the daemon until a signal ends it; returns the exit status. Raises ConfigError."""
    from nodepool.cmd.daemon import run_service
    from nodepool.web.server import WebDaemon

    return run_service(WebDaemon(options.config, options.secure), None)


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    with exit_at_once():
        from nodepool.cmd import daemon

        return daemon.main(PROG, make_parser().parse_args(argv), LOGFILE, serve)


if __name__ == "__main__":
    sys.exit(main())
