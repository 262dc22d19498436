# SPDX-License-Identifier: Apache-2.0
"""``nodepool``: the command line for operators (reference/commands 2)."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any, Final

from nodepool import log_names, logconfig
from nodepool.cmd import (
    app,
    check,
    completion,
    config_diff,
    events,
    explain,
    image_backup,
    image_changes,
    image_lists,
    image_log,
    image_uploads,
    maintenance,
    nodes,
    overview,
    providers,
    requests,
    validate,
)

PROG: Final = "nodepool"

#: Modules that bring sub-commands, in the order of the help text.
_GROUPS: Final = (
    nodes,
    requests,
    explain,
    image_lists,
    image_changes,
    image_uploads,
    image_log,
    image_backup,
    providers,
    overview,
    events,
    maintenance,
    validate,
    config_diff,
    check,
)


def make_parser() -> argparse.ArgumentParser:
    """The command line. Nothing heavy is imported for it."""
    parser = app.make_parser(PROG, "Shows and changes what Nodepool knows.")
    _add_debug_option(parser)
    parser.set_defaults(debug=False)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")

    def add(name: str, **settings: Any) -> argparse.ArgumentParser:
        """As ``add_parser``; what may stand before a command may stand after it, too."""
        settings.setdefault("description", settings.get("help", "").capitalize() + ".")
        command: argparse.ArgumentParser = commands.add_parser(name, **settings)
        app.add_file_options(command)
        _add_debug_option(command)
        return command

    for group in _GROUPS:
        group.add_commands(add)
    completion.add_command(add, commands.choices)
    return parser


def _add_debug_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help="log everything to stderr")


def set_up_logging(options: argparse.Namespace) -> None:
    """Use ``--debug``, or else ``-l``, or else log to stderr. Raises LogConfigError."""
    if options.logconfig and not options.debug:
        logconfig.load_config(options.logconfig)
        return
    config = logconfig.default_config(level="DEBUG" if options.debug else "INFO", stream="ext://sys.stderr")
    if options.debug:
        config["loggers"] = {}
        config["root"] = {"handlers": ["output"], "level": "DEBUG"}
    else:
        # That a connection was made is no news for somebody who waits for a table.
        config["loggers"]["nodepool.zk"] = {"level": "WARNING"}
        config["loggers"][log_names.COMPONENT_REGISTRY] = {"level": "WARNING"}
    logconfig.apply_config(config)


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    parser = make_parser()
    options = parser.parse_args(argv)
    if not hasattr(options, "run"):
        parser.print_help()
        return 1

    def work() -> int:
        set_up_logging(options)
        status: int = options.run(options)
        # Part of the answer: if it cannot be written, as on a full disk, the command has failed.
        print(end="", flush=True)
        return status

    return app.run(PROG, work)


if __name__ == "__main__":
    sys.exit(main())
