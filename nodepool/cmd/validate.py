# SPDX-License-Identifier: Apache-2.0
"""Commands about configuration files (reference/commands 2).

First ``nodepool config-validate``, which finds every problem of a file, then ``config-diff``, which shows what a reload
would do.
"""

from __future__ import annotations

import argparse
import linecache
import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nodepool import log_names
from nodepool.clock import wall_time
from nodepool.cmd.app import CommandError, absolute_path
from nodepool.cmd.session import open_zookeeper, quiet
from nodepool.exceptions import ConfigError

if TYPE_CHECKING:
    from nodepool.config.objects import Config
    from nodepool.config.problems import Problem
    from nodepool.plan.config_diff import Effect, ServedConfig

log = logging.getLogger(log_names.CONFIG_VALIDATOR)


def add_commands(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Add ``config-validate``.

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


# ``nodepool config-diff``: what a reload would do, and who has loaded the file (reference/commands 2).


def add_diff_commands(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Add ``config-diff``.

    :param add: ``add_parser`` of the sub-command group.
    """
    parser = add(
        "config-diff",
        help="what a reload of a changed configuration would do, and which launchers have loaded the file",
        description="Compares two configuration files as a daemon does when its file changes: what has another value, "
        "which providers are started, stopped or started anew, what is refused, and what needs a restart. Nothing is "
        "contacted. Exit status 1 if the new file, or a section of it, would be refused. Without NEW: asks ZooKeeper "
        "which running launchers serve the file of -c as it stands. Exit status 1 if one does not.",
        epilog="Example: nodepool -c /etc/nodepool/nodepool.yaml config-diff new.yaml",
        usage="%(prog)s [OPTIONS] [[OLD] NEW]",
    )
    parser.add_argument(
        *("files",),
        metavar="FILE",
        nargs="*",
        action=_TwoFiles,
        type=absolute_path,
        help="the file in effect (default: that of -c), and the changed file",
    )
    parser.add_argument(
        *("-o", "--format"),
        choices=("text", "json"),
        default="text",
        help="how to print the result (default: %(default)s)",
    )
    parser.set_defaults(run=show_difference)


class _TwoFiles(argparse.Action):
    """No more than two files."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: str | None = None
    ) -> None:
        if len(values) > 2:
            parser.error(f"{len(values)} files are given, two can be compared")
        setattr(namespace, self.dest, values)


def show_difference(options: argparse.Namespace) -> int:
    """``nodepool config-diff``; returns 1 if something of the new file would be refused, or is not served.

    :raises CommandError: a file is refused as a whole.
    """
    from nodepool.plan.config_diff import reload_effects
    from nodepool.runtime.reload import keep_usable

    if not options.files:
        return _show_served(options)
    old_path, new_path = [options.config, *options.files][-2:]
    old = _load(old_path, options.secure, "cannot be compared with")
    new = _load(new_path, options.secure, "would be refused, and the running configuration would stay")
    refused = {**_unusable(new), **keep_usable(old, new)}
    effects = reload_effects(old, new, refused)
    print(_as_json(effects) if options.format == "json" else _as_text(effects, new_path))
    return 1 if refused else 0


def _show_served(options: argparse.Namespace) -> int:
    """Which launchers serve the file of ``-c``? Raises CommandError: there is no launcher, or no such file."""
    from nodepool.config.marks import read
    from nodepool.listing.problems import served_line
    from nodepool.plan.attention import Registered
    from nodepool.plan.config_diff import served_configs
    from nodepool.zk import components
    from nodepool.zk.status import read_launchers

    with open_zookeeper(options) as zk:
        digest = read(options.config).digest
        registered = [Registered(entry.hostname, entry.version) for entry in components.read_launchers(zk.client)]
        found = served_configs(digest, read_launchers(zk.client), registered)
    if not found:
        raise CommandError("no launcher is registered: is one running, with the same zookeeper-servers?")
    if options.format == "json":
        print(_as_json(found))
    else:
        print(f"{options.config} is {digest}")
        for served in found:
            print(served_line(served, wall_time()))
    return 0 if all(served.serves for served in found) else 1


def _load(path: str, secure: str | None, what: str) -> Config:
    from nodepool.config.loader import load_config

    try:
        # What is wrong with sections of providers is said of each change.
        with quiet("nodepool.config"):
            return load_config(path, secure)
    except ConfigError as error:
        raise CommandError(f"{error}\n{path} {what}") from None


def _unusable(config: Config) -> Mapping[str, str]:
    from nodepool.driver.framework.sections import UnavailableProviderConfig

    providers = config.providers.items()
    return {name: found.reason for name, found in providers if isinstance(found, UnavailableProviderConfig)}


def _as_text(effects: Sequence[Effect], path: str) -> str:
    if not effects:
        return f"{path}: no key has another value"
    lines = []
    for found in effects:
        lines.append(found.change.text)
        if found.effect:
            lines.append(f"  -> {found.effect}")
    return "\n".join(lines)


def _as_json(answers: Sequence[Effect | ServedConfig]) -> str:
    import json

    return json.dumps([found.to_dict() for found in answers], indent=2)
