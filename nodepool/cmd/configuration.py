# SPDX-License-Identifier: Apache-2.0
"""Commands about the configuration (reference/commands 2).

First ``nodepool config-validate``, which finds every problem of a file, then ``config-diff``, which shows what a reload
would do, then ``check``: can this machine serve the configuration? Last how problems look as text, as JSON and as
GitHub's checks want them, and what ``check`` found.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import linecache
import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TextIO

from nodepool import log_names
from nodepool.cmd.app import CommandError, listed
from nodepool.cmd.session import connect, quiet, say_what_is_waited_for, show
from nodepool.config.assembly import validate, validate_here
from nodepool.config.loader import load_config
from nodepool.config.objects import Config
from nodepool.config.problems import Problem, Severity
from nodepool.driver.framework.cloud_errors import CheckResult, failure
from nodepool.driver.framework.sections import UnavailableProviderConfig
from nodepool.exceptions import ConfigError, ZKException
from nodepool.listing import table
from nodepool.listing.table import Column, Table, printable
from nodepool.listing.terminal import console_of
from nodepool.model.config_keys import names_a_secret
from nodepool.plan.config_diff import reload_effects
from nodepool.plan.observed import OTHERS, end_of_other, of_other
from nodepool.plan.pool_summary import by_provider, largest, summarize

if TYPE_CHECKING:
    from nodepool.zk.zookeeper import ZooKeeper


Results = dict[str, list[CheckResult]]

log = logging.getLogger(log_names.CONFIG_VALIDATOR)


def do_config_validate(options: argparse.Namespace) -> int:
    """``nodepool config-validate``: one line a problem; returns 1 if there is an error among them."""
    problems = validate_here(options.config, options.secure)
    errors = sum(map(is_error, problems))
    last = _summary(options.config, errors, len(problems) - errors)
    if options.format == "json":
        print(as_json(problems))
    elif options.format == "github":
        for problem in problems:
            print(as_github(problem))
    elif options.logconfig or options.debug:
        # The options say where lines go, and how they look.
        for problem in problems:
            log.log(logging.ERROR if is_error(problem) else logging.WARNING, "%s", problem)
        log.log(logging.ERROR if errors else logging.INFO, "%s", last)
    else:
        terminal, colour = sys.stderr.isatty(), not os.environ.get("NO_COLOR")
        for problem in problems:
            text = as_frame(problem, linecache.getline, colour=colour) if terminal else as_text(problem)
            print(text, file=sys.stderr)
        print(last, file=sys.stderr)
    return 1 if errors else 0


def _summary(path: str, errors: int, warnings: int) -> str:
    """The last line."""
    also = f"{warnings} warning{'s' * (warnings != 1)}" if warnings else ""
    if errors:
        return f"{path}: {errors} problem{'s' * (errors != 1)} found{also and f', and {also}'}"
    return f"{path} is valid{also and f', with {also}'}"


# ``nodepool config-diff``: what a reload would do (reference/commands 2).


def do_config_diff(options: argparse.Namespace) -> int:
    """``nodepool config-diff``; returns 1 if something of the new file would be refused.

    :raises CommandError: a file is refused as a whole.
    """
    from nodepool.runtime.daemon import keep_usable

    files = [path for path in (options.first, options.second) if path is not None]
    old_path, new_path = [options.config, *files][-2:]
    old = _load(old_path, options.secure, "cannot be compared with")
    new = _load(new_path, options.secure, "would be refused, and the running configuration would stay")
    broken = {name: one.reason for name, one in new.providers.items() if isinstance(one, UnavailableProviderConfig)}
    refused = {**broken, **keep_usable(old, new)}
    effects = reload_effects(old, new, refused)
    if options.format == "json":
        print(json.dumps([found.to_dict() for found in effects], indent=2))
    for found in effects if options.format == "text" else ():
        print(found.change.text)
        if found.effect:
            print(f"  -> {found.effect}")
    if not effects and options.format == "text":
        print(f"{new_path}: no key has another value")
    return 1 if refused else 0


def _load(path: str, secure: str | None, what: str) -> Config:
    try:
        # What is wrong with sections of providers stands beside each change.
        with quiet("nodepool.config"):
            return load_config(path, secure)
    except ConfigError as error:
        raise CommandError(f"{error}\n{path} {what}") from None


# ``nodepool check``: ZooKeeper, clouds and hosts.


def do_check(options: argparse.Namespace) -> int:
    """``nodepool check``; blocks for some calls to each cloud. Returns 1 if something failed.

    :raises CommandError: a provider is not in the configuration.
    """
    results: Results = {"configuration": _configuration(options)}
    config: Config | None = None
    # What refuses the file as a whole is among the results already.
    with contextlib.suppress(ConfigError), quiet("nodepool.config"):
        config = load_config(options.config, options.secure)
    if config is not None:
        unknown = [name for name in options.providers if name not in config.providers]
        if unknown:
            there_are = listed("there are", config.providers)
            raise CommandError(f"provider {', '.join(unknown)} is not in the configuration; {there_are}")
        with contextlib.ExitStack() as stack:
            zk: ZooKeeper | None = None
            try:
                zk = stack.enter_context(connect(config))
                results["zookeeper"] = [CheckResult("connection", True, f"connected to {zk.client.hosts}")]
            except (ConfigError, ZKException) as error:
                results["zookeeper"] = [failure("connection", line) for line in str(error).splitlines()]
            if zk is not None and not options.providers:
                results["zookeeper"] += _min_ready_labels(config, zk)
            results |= _providers(config, options, zk)
    if sys.stdout.isatty() and options.format == "table" and not options.columns and not options.sort:
        print_checks(results, sys.stdout)
    else:
        show(check_table(results), options)
    found = [result for each in results.values() for result in each]
    failed = sum(not result.ok for result in found)
    if failed:
        print(f"nodepool: {failed} of {len(found)} checks failed", file=sys.stderr)
    return 1 if failed else 0


def _configuration(options: argparse.Namespace) -> list[CheckResult]:
    """What ``config-validate`` says of the files."""
    try:
        problems = validate(options.config, options.secure)
    except ConfigError as error:
        return [CheckResult("file", False, line) for line in str(error).splitlines()]
    found = [
        CheckResult(
            f"{problem.file}:{problem.line}" if problem.line else problem.file,
            not is_error(problem),
            f"{problem.key}: {problem.message}" if problem.key else problem.message,
            "" if is_error(problem) else "see config-validate",
        )
        for problem in problems
    ]
    return found or [CheckResult(options.config, True, "valid")]


def _min_ready_labels(config: Config, zk: ZooKeeper) -> list[CheckResult]:
    """Labels to keep ready that no launcher can serve: neither this file nor a registered one has them in a pool."""
    from nodepool.zk import components

    if any(isinstance(one, UnavailableProviderConfig) for one in config.providers.values()):
        # What is wrong with its section is the cause.
        return []
    served = {label for pool in components.read_pools(zk.client) for label in pool.supported_labels}
    return [
        CheckResult(
            f"label {name}",
            False,
            f"min-ready is {label.min_ready}, but no pool of this file and of the running launchers has the label",
            "add the label to a pool, or remove min-ready",
        )
        for name, label in config.labels.items()
        if label.min_ready > 0 and not label.pools and name not in served
    ]


def _providers(config: Config, options: argparse.Namespace, zk: ZooKeeper | None) -> Results:
    from nodepool.runtime.providers import LIMIT_SECONDS, check_providers

    wanted = {name: one for name, one in config.providers.items() if not options.providers or name in options.providers}
    with say_what_is_waited_for(f"{len(wanted)} providers", limit=LIMIT_SECONDS):
        checked = check_providers(wanted.values(), zk)
    seen = {} if zk is None else _other_installations(zk)
    # Instances are among the things that launchers saw.
    remedies = {name: {result.remedy for result in found} for name, found in seen.items()}
    return {
        f"provider {name}": [
            *(result for result in found if result.remedy not in remedies.get(name, ())),
            *seen.get(name, ()),
        ]
        for name, found in checked.items()
    }


def _other_installations(zk: ZooKeeper) -> dict[str, list[CheckResult]]:
    """D-10: what running launchers saw in the clouds of providers; this command lists instances only."""
    from nodepool.zk import status

    return {
        name: [
            CheckResult(OTHERS, True, of_other(name, other, count), end_of_other(name, other))
            for other, count in sorted(largest(pool.other_installations for pool in pools).items())
        ]
        for name, pools in by_provider(summarize(status.read_pools(zk.client))).items()
    }


_RED, _YELLOW, _BOLD, _PLAIN = "\x1b[31m", "\x1b[33m", "\x1b[1m", "\x1b[0m"
#: Longest line of a file that is shown.
_MAX_LINE: Final = 160

#: Reads one line of a file: path and number, from 1 -> its text; None = there is none.
ReadLine = Callable[[str, int], str | None]


def is_error(problem: Problem) -> bool:
    """Is the file refused for it?"""
    return problem.severity is not Severity.WARNING


def _kind(problem: Problem) -> str:
    return "error" if is_error(problem) else "warning"


def as_text(problem: Problem) -> str:
    """``file:line:column: key: text``; a warning says that it is one."""
    text = str(problem)
    if is_error(problem):
        return text
    return f"{text.removesuffix(problem.message)}warning: {problem.message}"


def as_frame(problem: Problem, read_line: ReadLine, *, colour: bool) -> str:
    """As `as_text`, with the line of the file and a caret below the place. What may be a secret is not shown."""
    paint = (_YELLOW if _kind(problem) == "warning" else _RED) if colour else ""
    plain = _PLAIN if paint else ""
    head = as_text(problem)
    if paint:
        place = head[: len(head) - len(problem.message)]
        head = f"{_BOLD}{place}{plain}{paint}{problem.message}{plain}"
    line = "" if problem.line is None else (read_line(problem.file, problem.line) or "").rstrip("\r\n")
    if not line.strip() or names_a_secret((problem.key, line)):
        return head
    shown = printable(line)[:_MAX_LINE]
    number = str(problem.line)
    column = (problem.column or len(shown) - len(shown.lstrip()) + 1) - 1
    if column >= len(shown):
        return head
    # The key that the text begins with.
    text = shown[column:]
    width = max(1, len(text.partition(":")[0] if ":" in text else text.strip()))
    caret = f"{paint}{'^' * width}{plain}"
    return f"{head}\n  {number} | {shown}\n  {' ' * len(number)} | {' ' * column}{caret}"


def as_json(problems: Sequence[Problem]) -> str:
    """A list of objects."""
    keys = ("file", "line", "column", "key")
    records = [
        {**{key: getattr(problem, key) for key in keys}, "severity": _kind(problem), "message": problem.message}
        for problem in problems
    ]
    return json.dumps(records, indent=2)


def as_github(problem: Problem) -> str:
    """A workflow command, which GitHub shows beside the line."""
    place = [("file", problem.file), ("line", problem.line), ("col", problem.column), ("title", problem.key)]
    given = ",".join(f"{name}={_property(str(value))}" for name, value in place if value)
    return f"::{_kind(problem)} {given}::{_data(problem.message)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


# What ``nodepool check`` found: a table, and on a terminal lines that are not cut (reference/commands 2).

_COLOURS: Final = {"ok": table.GOOD, "warning": table.WAITING, "failed": table.BAD}


def check_table(results: Mapping[str, Sequence[CheckResult]]) -> Table:
    """A row for each result.

    :param results: where it was looked at, such as ``cloud-1`` -> what was found.
    """
    columns = (
        Column("Result", "result", style=lambda value: _COLOURS.get(value, "")),
        Column("Where", "where"),
        Column("What", "subject"),
        Column("Found", "text", least=40),
        Column("Remedy", "remedy", least=30),
    )
    rows: list[list[Any]] = [
        [result.status, where, result.subject, result.text, result.remedy or None]
        for where, found in results.items()
        for result in found
    ]
    return Table(columns, rows)


def print_checks(results: Mapping[str, Sequence[CheckResult]], stream: TextIO) -> None:
    """Print results for people: texts are wrapped, never cut, because each says what to do.

    :param results: as for `check_table`.
    :param stream: a terminal.
    """
    from rich.table import Table as Grid
    from rich.text import Text

    console = console_of(stream)
    for where, found in results.items():
        console.print(Text(printable(where), "bold"))
        grid = Grid.grid(padding=(0, 2))
        for result in found:
            lines = [f"{result.subject}: {result.text}", *([f"-> {result.remedy}"] if result.remedy else [])]
            shown = Text("\n".join(map(printable, lines)), overflow="fold")
            grid.add_row("", Text(result.status, _COLOURS[result.status]), shown)
        console.print(grid)
