# SPDX-License-Identifier: Apache-2.0
"""``nodepool config-validate``: every problem of the configuration file (reference/commands 2)."""

from __future__ import annotations

import argparse
import linecache
import logging
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from nodepool import log_names

if TYPE_CHECKING:
    from nodepool.config.problems import Problem

log = logging.getLogger(log_names.CONFIG_VALIDATOR)


def add_commands(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the commands of this module.

    :param add: ``add_parser`` of the sub-command group.
    """
    parser = add(
        "config-validate",
        help="check the configuration file",
        description="Reports every problem of the configuration file (-c) with its secure file (-s), as "
        "file:line:column: key: text. Contacts nothing. Exit status 1 if there is an error among them.",
        epilog="Example: nodepool -c nodepool.yaml config-validate --format github",
    )
    parser.add_argument(
        *("-o", "--format"),
        choices=("text", "json", "github"),
        default="text",
        help="text: lines on stderr; json, github: on stdout (default: %(default)s)",
    )
    parser.set_defaults(run=validate_config)


def validate_config(options: argparse.Namespace) -> int:
    """``nodepool config-validate``: one line a problem; returns 1 if there is an error among them."""
    from nodepool.config.validator import validate_here
    from nodepool.listing.problems import is_error

    problems = validate_here(options.config, options.secure)
    _print(problems, options)
    return 1 if any(is_error(problem) for problem in problems) else 0


def _print(problems: Sequence[Problem], options: argparse.Namespace) -> None:
    from nodepool.listing import problems as forms

    if options.format == "json":
        print(forms.as_json(problems))
    elif options.format == "github":
        for problem in problems:
            print(forms.as_github(problem))
    elif options.logconfig or options.debug:
        # Somebody has said where lines go, and how they look.
        for problem in problems:
            log.log(logging.ERROR if forms.is_error(problem) else logging.WARNING, "%s", problem)
        errors = any(forms.is_error(problem) for problem in problems)
        log.log(logging.ERROR if errors else logging.INFO, "%s", summary(options.config, problems))
    else:
        terminal = sys.stderr.isatty()
        for problem in problems:
            colour = terminal and not os.environ.get("NO_COLOR")
            text = forms.as_frame(problem, _read_line, colour=colour) if terminal else forms.as_text(problem)
            print(text, file=sys.stderr)
        print(summary(options.config, problems), file=sys.stderr)


def summary(path: str, problems: Sequence[Problem]) -> str:
    """The last line."""
    from nodepool.listing.problems import is_error

    errors = sum(is_error(problem) for problem in problems)
    warnings = len(problems) - errors
    also = _count(warnings, "warning") if warnings else ""
    if errors:
        return f"{path}: {_count(errors, 'problem')} found{also and f', and {also}'}"
    return f"{path} is valid{also and f', with {also}'}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _read_line(path: str, number: int) -> str | None:
    return linecache.getline(path, number).rstrip("\r\n") or None
