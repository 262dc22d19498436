# SPDX-License-Identifier: Apache-2.0
"""The arguments of tools/install."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from install_lib.source import extras_of

DIRECTORY: Final = "/opt/nodepool"

_DESCRIPTION: Final = """\
Install Nodepool from this directory: the user nodepool, the directories of configuration, data and logs, a virtual
environment, the commands in /usr/local/bin, units for systemd, man pages, and completion for bash, zsh and fish. It
says what it does, and may be run again at any time: it changes only what is not right. A file that was edited stays,
and the new one is laid beside it. Nothing is started."""


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser("tools/install", description=_DESCRIPTION, allow_abbrev=False)
    add = parser.add_argument
    add("--dry-run", action="store_true", help="say what would be done, and change nothing; needs no root")
    add("--uninstall", action="store_true", help="remove it; configuration, data, logs and edited files stay")
    add("--purge", action="store_true", help="with --uninstall: remove these, too, if tools/install has made them")
    add(
        "--extras",
        type=_extras,
        action="append",
        default=[],
        metavar="NAME[,NAME]",
        help="extras of the package; those of earlier runs stay",
    )
    add(
        "--also",
        action="append",
        default=[],
        metavar="PACKAGE",
        help="another package for the virtual environment, as pip takes it, e.g. one with a driver; may be repeated; "
        "those of earlier runs stay",
    )
    add("--wheel", type=Path, metavar="FILE", help="install this wheel of Nodepool in place of the directory's source")
    add(
        "--directory",
        type=_absolute,
        metavar="DIR",
        help=f"where the virtual environment is (default: that of the run before, else {DIRECTORY})",
    )
    add("--no-man-pages", dest="man_pages", action="store_false", help="without man pages, which need Sphinx from PyPI")
    add(
        "--root",
        type=Path,
        metavar="DIR",
        help="install into this tree, for a package: without accounts, owners and services; needs no root",
    )
    return parser


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """Read the arguments. Ends the process with code 2 if they are not understood."""
    parser = make_parser()
    options = parser.parse_args(arguments)
    if options.purge and not options.uninstall:
        parser.error("--purge goes with --uninstall")
    if options.root is not None:
        options.root = options.root.resolve()
        if options.root == Path("/"):
            parser.error("--root / is this machine: leave the option out")
    options.wheel = options.wheel and options.wheel.resolve()
    options.extras = [name for names in options.extras for name in names]
    return options


def _extras(text: str) -> list[str]:
    return extras_of(text)


def _absolute(text: str) -> str:
    path = Path(text)
    if not path.is_absolute() or ".." in path.parts or len(path.parts) < 3:
        raise argparse.ArgumentTypeError(f"{text} is not the full path of a directory below another one")
    return str(path)
