# SPDX-License-Identifier: Apache-2.0
"""``nodepool``: the command line for operators (reference/commands 2)."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from nodepool import log_names, logconfig
from nodepool.cmd import app

PROG: Final = "nodepool"

#: Module -> its commands.
MODULES: Final[Mapping[str, str]] = {
    "nodes": "list nodes delete hold request-list requests label-list",
    "overview": "explain status providers hosts launchers tenants events",
    "image_lists": "image-list dib-image-list image-status alien-image-list image-log",
    "image_changes": "image-build image-pause image-unpause image-delete dib-image-delete image-upload image-rollback",
    "image_backup": "export-image-data import-image-data",
    "providers": "info erase installation",
    "maintenance": "pause drain resume quarantine release maintenance",
    "validate": "config-validate config-diff",
    "check": "check",
    "health": "health",
}
#: The commands as the help of the program shows them.
HEADINGS: Final[Mapping[str, str]] = {
    "look": "status explain list request-list label-list providers hosts launchers tenants events info health",
    "change": "hold delete pause drain resume quarantine release maintenance",
    "images": "image-list dib-image-list image-status image-build image-upload image-rollback image-pause "
    "image-unpause image-delete dib-image-delete image-log alien-image-list",
    "configuration": "config-validate config-diff check completion",
    "repair": "erase installation export-image-data import-image-data",
}
#: Options in front of a command, and those of them that have a value.
_FLAGS, _FILES = ("--debug",), ("-c", "-s", "-l")


def make_parser(command: str | None = None, *, flat: bool = False) -> argparse.ArgumentParser:
    """The command line. Nothing heavy is imported for it.

    :param command: the only one that is needed: to import and describe all takes as long as many a command itself.
        None, or one that does not exist = all.
    :param flat: the help has one list of all commands, as shells show them, too.
    """
    parser = app.make_parser(PROG, "Shows and changes what Nodepool knows.")
    _add_debug_option(parser)
    parser.set_defaults(debug=False)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", help="one of these:")
    lines: dict[str, argparse.Action] = {}

    def add(
        name: str, run: Callable[[argparse.Namespace], int], text: str, *examples: str, **settings: Any
    ) -> argparse.ArgumentParser:
        names = " ".join([name, *(f"({alias})" for alias in settings.get("aliases", ()))])
        lines[name] = argparse.Action([], name, metavar=names, help=text)
        settings |= {"help": text} if flat else {}
        settings.setdefault("description", f"{text[0].upper()}{text[1:]}.")
        settings.setdefault("epilog", f"example{'s' * (len(examples) > 1)}: {'; '.join(examples)}")
        command: argparse.ArgumentParser = commands.add_parser(name, **settings)
        command.set_defaults(run=run)
        # What may stand before a command may stand after it, too.
        app.add_file_options(command)
        _add_debug_option(command)
        return command

    modules = [module for module, names in MODULES.items() if command in names.split()]
    for module in modules or MODULES:
        importlib.import_module(f"nodepool.cmd.{module}").add_commands(add)
    if not modules:
        completion = add(
            "completion",
            _complete,
            "print what a shell needs to complete commands and options",
            "nodepool completion bash > /etc/bash_completion.d/nodepool",
            'in ~/.zshrc, after compinit: eval "$(nodepool completion zsh)"',
            "nodepool completion fish > ~/.config/fish/completions/nodepool.fish",
            description="Prints a script for a shell, which completes commands, options and their values after it.",
        )
        completion.add_argument("shell", choices=("bash", "zsh", "fish"), help="the shell")
        for heading, names in HEADINGS.items():
            parser.add_argument_group(heading)._group_actions += [lines[name] for name in names.split()]
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
        # A person who waits for a table need not know that a connection was made.
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
        status = main()
    if status == app.INTERRUPTED:
        # A thread may be in the middle of a handshake. The end of the interpreter could crash it, and then the process.
        os._exit(status)
    return status


def _complete(options: argparse.Namespace) -> int:
    """``nodepool completion``"""
    import shtab

    parser = make_parser(flat=True)
    (commands,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    for action in (action for one in (parser, *commands.choices.values()) for action in one._actions):
        if action.type is app.absolute_path:
            action.complete = shtab.FILE
    print(shtab.complete(parser, options.shell))
    return 0


if __name__ == "__main__":
    sys.exit(program())
