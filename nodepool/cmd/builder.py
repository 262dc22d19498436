# SPDX-License-Identifier: Apache-2.0
"""``nodepool-builder``: builds and uploads images (reference/commands 3 and 4).

Everything but the handling of signals is imported by functions, so that a signal finds a handler from the start.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from nodepool.cmd import exit_at_once

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

PROG: Final = "nodepool-builder"
PIDFILE: Final = "/var/run/nodepool/nodepool-builder.pid"
LOGFILE: Final = "/var/log/nodepool/nodepool-builder.log"
#: Default of ``--stop-timeout``, in seconds.
STOP_TIMEOUT: Final = 60.0


def _count(value: str) -> int:
    number = int(value)
    if number < 0:
        raise ValueError
    return number


def make_parser() -> argparse.ArgumentParser:
    """The command line of the builder."""
    from nodepool.cmd import app, daemon

    parser = app.make_parser(
        PROG, "Builds images and uploads them to clouds. Goes into the background unless -d or -f is given."
    )
    daemon.add_options(parser, PIDFILE)
    for kind, count in (("build", 1), ("upload", 4)):
        text = f"parallel {kind}s (default: %(default)s)"
        parser.add_argument(f"--{kind}-workers", type=_count, default=count, metavar="N", help=text)
    text = "build small files instead of images, without diskimage-builder, to try it"
    parser.add_argument("--fake", action="store_true", help=text)
    text = "how long builds may go on after SIGINT (default: %(default)g)"
    parser.add_argument("--stop-timeout", type=app.seconds, default=STOP_TIMEOUT, metavar="SECONDS", help=text)
    text = "remove files of builds that have no record at once, without the usual caution"
    parser.add_argument("--clean-orphans", action="store_true", help=text)
    return parser


def check_configuration(options: argparse.Namespace) -> None:
    """Refuse a configuration that the builder could not start with.

    :raises ConfigError: every problem, one a line.
    """
    from nodepool.builder.supervisor import check_config
    from nodepool.cmd import daemon

    check_config(daemon.check_configuration(options))


def serve(options: argparse.Namespace) -> int:
    """Run the builder until a signal ends it; returns the exit status. Raises ConfigError."""
    from nodepool.builder.progress import BuilderOptions
    from nodepool.builder.supervisor import ImageBuilder
    from nodepool.cmd.daemon import run_service
    from nodepool.web.server import builder_part

    settings = BuilderOptions(
        options.build_workers, options.upload_workers, options.fake, options.stop_timeout, options.clean_orphans
    )
    builder = ImageBuilder(options.config, options.secure, settings, [builder_part])
    return run_service(builder, "builder" if options.repl else None)


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    with exit_at_once():
        from nodepool.cmd import daemon

        return daemon.main(PROG, make_parser().parse_args(argv), LOGFILE, serve, check_configuration)


if __name__ == "__main__":
    sys.exit(main())
