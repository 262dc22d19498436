# SPDX-License-Identifier: Apache-2.0
"""``nodepool``: the command line for operators (reference/commands 2)."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Final

from nodepool import log_names, logconfig
from nodepool.cmd import app, completion

PROG: Final = "nodepool"

#: Module, its function that adds commands, and these, in the order of the help text.
GROUPS: Final[Sequence[tuple[str, str, tuple[str, ...]]]] = (
    ("nodes", "add_commands", ("list", "nodes", "delete", "hold")),
    ("nodes", "add_request_commands", ("request-list", "requests", "label-list")),
    ("overview", "add_explain_commands", ("explain",)),
    ("image_lists", "add_commands", ("image-list", "dib-image-list", "image-status", "alien-image-list")),
    (
        "image_changes",
        "add_commands",
        ("image-build", "image-pause", "image-unpause", "image-delete", "dib-image-delete"),
    ),
    ("image_changes", "add_upload_commands", ("image-upload", "image-rollback")),
    ("image_lists", "add_log_commands", ("image-log",)),
    ("image_backup", "add_commands", ("export-image-data", "import-image-data")),
    ("providers", "add_commands", ("info", "erase", "installation")),
    ("overview", "add_commands", ("status", "providers", "hosts", "launchers", "tenants")),
    ("overview", "add_event_commands", ("events",)),
    ("maintenance", "add_commands", ("pause", "drain", "resume", "quarantine", "release", "maintenance")),
    ("validate", "add_commands", ("config-validate",)),
    ("validate", "add_diff_commands", ("config-diff",)),
    ("check", "add_commands", ("check",)),
    ("health", "add_commands", ("health",)),
)
#: Options in front of a command, and those of them that have a value.
_FLAGS, _FILES = ("--debug",), ("-c", "-s", "-l")


def make_parser(command: str | None = None) -> argparse.ArgumentParser:
    """The command line. Nothing heavy is imported for it.

    :param command: the only one that is needed: to import and describe all takes as long as many a command itself.
        None, or one that does not exist = all.
    """
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

    groups = [group for group in GROUPS if command in group[2]]
    for module, function, _ in groups or GROUPS:
        getattr(importlib.import_module(f"nodepool.cmd.{module}"), function)(add)
    if not groups:
        completion.add_command(add, parser, commands.choices)
    return parser


def command_in(arguments: Iterable[str]) -> str | None:
    """The first word of a command line that is neither an option nor its value; None = that is not plain to see."""
    words = iter(arguments)
    for word in words:
        if word in _FILES:
            next(words, None)
        elif word not in _FLAGS:
            return None if word.startswith("-") else word
    return None


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
    """Run a command; returns the exit status.

    :param argv: default: the arguments of the process.
    """
    arguments = sys.argv[1:] if argv is None else argv
    parser = make_parser(command_in(arguments))
    options = parser.parse_args(arguments)
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


def program() -> int:
    """Entry point of a process that ends with the command; returns the exit status."""
    with app.in_a_command():
        return main()


if __name__ == "__main__":
    sys.exit(program())
