# SPDX-License-Identifier: Apache-2.0
"""Commands about the configuration (reference/commands 2).

First ``nodepool config-validate``, which finds every problem of a file, then ``config-diff``, which shows what a reload
would do, then ``check``: can this machine serve the configuration? Then how problems look as text, as JSON and as
GitHub's checks want them, and what ``check`` found. Last ``config-schema``, the JSON Schema of a file, for editors.
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
from itertools import combinations
from pathlib import Path
from typing import Any, Final, TextIO
from xml.etree import ElementTree

from nodepool import config as config_package
from nodepool import log_names
from nodepool.cmd.app import CommandError, listed
from nodepool.cmd.session import connect, quiet, say_what_is_waited_for, show
from nodepool.config.assembly import AnyProvider, validate, validate_here
from nodepool.config.loader import load_config
from nodepool.config.objects import Config, TopLevel
from nodepool.config.problems import Problem, Severity
from nodepool.config.zookeeper import ZooKeeperSettings
from nodepool.driver.config import DEFAULT_DRIVER
from nodepool.driver.framework.cloud_errors import CheckResult, failure
from nodepool.driver.framework.sections import DeclaredProviderConfig, UnavailableProviderConfig
from nodepool.driver.registry import Drivers, DriverUnavailable, LibraryMissing
from nodepool.exceptions import ConfigError, ZKException
from nodepool.listing import table
from nodepool.listing.table import Column, Table, printable
from nodepool.listing.terminal import console_of
from nodepool.model import config_keys as keys
from nodepool.model.config_keys import names_a_secret
from nodepool.plan.config_diff import reload_effects
from nodepool.plan.observed import OTHERS, end_of_other, of_other
from nodepool.plan.pool_summary import by_provider, largest, summarize
from nodepool.zk.zookeeper import ZooKeeper

Results = dict[str, list[CheckResult]]

log = logging.getLogger(log_names.CONFIG_VALIDATOR)


def do_config_validate(options: argparse.Namespace) -> int:
    """``nodepool config-validate``: one line a problem; returns 1 if there is an error among them."""
    problems = validate_here(options.config, options.secure)
    errors = sum(map(is_error, problems))
    last = _summary(options.config, errors, len(problems) - errors)
    if options.format != "text":
        print(_REPORTS[options.format](options.config, problems), end="")
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

    old_path, new_path = options.old or options.config, options.new
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
            return load_config(path, secure, complete=secure is not None)
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


def as_json(path: str, problems: Sequence[Problem]) -> str:
    """A list of objects."""
    keys = ("file", "line", "column", "key")
    records = [
        {**{key: getattr(problem, key) for key in keys}, "severity": _kind(problem), "message": problem.message}
        for problem in problems
    ]
    return f"{json.dumps(records, indent=2)}\n"


def as_github(path: str, problems: Sequence[Problem]) -> str:
    """Workflow commands, each of which GitHub shows beside the line."""
    lines = []
    for problem in problems:
        place = [("file", problem.file), ("line", problem.line), ("col", problem.column), ("title", problem.key)]
        given = ",".join(f"{name}={_property(str(value))}" for name, value in place if value)
        lines.append(f"::{_kind(problem)} {given}::{_data(problem.message)}\n")
    return "".join(lines)


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def as_zuul(path: str, problems: Sequence[Problem]) -> str:
    """What Zuul's ``zuul_return`` takes as ``file_comments``: file, as seen from this directory -> comments."""
    comments: dict[str, list[dict[str, Any]]] = {}
    for problem in problems:
        text = f"{problem.key}: {problem.message}" if problem.key else problem.message
        place = {"line": problem.line} if problem.line else {}
        found = comments.setdefault(os.path.relpath(problem.file), [])
        found.append({**place, "message": text, "level": _kind(problem)})
    return f"{json.dumps(comments)}\n"


def as_junit(path: str, problems: Sequence[Problem]) -> str:
    """A report as JUnit writes it: a case for the whole file, and one for each problem. A warning is no failure."""
    counts = {"tests": len(problems) + 1, "failures": sum(map(is_error, problems)), "errors": 0, "skipped": 0}
    suite = ElementTree.Element("testsuite", {name: str(count) for name, count in counts.items()})
    suite.set("name", "nodepool config-validate")
    ElementTree.SubElement(suite, "testcase", classname=path, name="file")
    for problem in problems:
        case = ElementTree.SubElement(suite, "testcase", classname=problem.file, name=problem.key or "file")
        if is_error(problem):
            ElementTree.SubElement(case, "failure", message=problem.message).text = as_text(problem)
        else:
            ElementTree.SubElement(case, "system-out").text = as_text(problem)
    return f"{ElementTree.tostring(suite, encoding='unicode', xml_declaration=True)}\n"


#: Of ``--format``: what goes to stdout, of the path of the file and its problems.
_REPORTS: Final[Mapping[str, Callable[[str, Sequence[Problem]], str]]] = {
    "json": as_json,
    "github": as_github,
    "zuul": as_zuul,
    "junit": as_junit,
}

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


# ``nodepool config-schema``: the declared keys as a JSON Schema (2020-12), by which editors complete and check a file.
#
# It refuses nothing that ``config-validate`` accepts without a warning. What keys of a section say together it does not
# know.

#: What ``nodepool config-schema`` prints where the libraries of all drivers are installed.
SHIPPED_SCHEMA: Final = Path(config_package.__file__).with_name("nodepool.schema.json")
#: Of numbers and flags: a text stands for one if it is a variable of the environment.
_FROM_ENVIRONMENT: Final = {"pattern": r"^%\(NODEPOOL_.*\)$"}

Schema = dict[str, Any]


def do_config_schema(options: argparse.Namespace) -> int:
    """``nodepool config-schema``: prints the schema of what this installation can read. Imports all drivers."""
    print(json.dumps(file_schema(), indent=1, ensure_ascii=False))
    return 0


def file_schema() -> Schema:
    """The schema of a whole file. A driver whose keys are not declared may have any."""
    providers = {name: _provider_schema(name) for name in Drivers.names()}
    of_driver = [
        {
            "if": {"properties": {"driver": {"const": name}}, "required": ["driver"][name == DEFAULT_DRIVER :]},
            "then": {"$ref": f"#/$defs/{name}"},
        }
        for name in providers
    ]
    common = _section_schema(AnyProvider)
    driver = common["properties"]["driver"] | {"enum": [*providers]}
    top = _section_schema(TopLevel)
    top["properties"] |= _section_schema(ZooKeeperSettings)["properties"]
    top["properties"]["providers"]["items"] = {
        "type": "object",
        "required": ["name"],
        "properties": {"name": common["properties"]["name"], "driver": driver},
        "allOf": of_driver,
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "nodepool.yaml",
        **top,
        "$defs": providers,
    }


def _provider_schema(driver: str) -> Schema:
    """Empty = its keys are not declared, so it may have any."""
    try:
        section = type(Drivers.get(driver).getProviderConfig({"name": driver, "driver": driver}))
    except LibraryMissing:
        found: Schema = json.loads(SHIPPED_SCHEMA.read_text(encoding="utf-8"))["$defs"][driver]
        return found
    except DriverUnavailable:
        return {}
    return _section_schema(section) if issubclass(section, DeclaredProviderConfig) else {}


def _section_schema(section: type) -> Schema:
    schema: Schema = {"type": "object", "properties": {}}
    for item in keys.keys_of(section):
        place = schema
        for part in item.path[:-1]:
            place = place["properties"].setdefault(part, {"type": "object", "properties": {}})
            place["additionalProperties"] = False
        place["properties"][item.path[-1]] = _key_schema(item)
        # What a section of the file needs may stand in the secure file.
        if item.required and len(item.path) == 1 and section is not ZooKeeperSettings:
            schema.setdefault("required", []).append(item.name)
    other = getattr(section, "other_keys", None)
    schema["additionalProperties"] = False if other is None else _value_schema(other)
    if first := getattr(section, "first_counts", ()):
        schema["not"] = {"anyOf": [{"required": [*pair]} for pair in combinations(first, 2)]}
    return schema


def _key_schema(item: keys.Key) -> Schema:
    unit = f" In {item.unit}." if item.unit else ""
    default = f" Default: {item.default_text}." if item.default_text else ""
    schema = _value_schema(item.kind) | {"description": (item.help + unit + default).replace("``", "`")}
    if isinstance(item.default, (bool, int, float, str, list, dict)) and not item.default_text:
        schema["default"] = item.default
    return schema


def _value_schema(kind: keys.ValueType) -> Schema:
    schema = _without_null(kind)
    if kind.null:
        for name, null in (("enum", None), ("anyOf", {"type": "null"}), ("type", "null")):
            if name in schema:
                schema[name] = [*([schema[name]] if isinstance(schema[name], str) else schema[name]), null]
    return schema


def _without_null(kind: keys.ValueType) -> Schema:
    match kind:
        case keys.Text(choices=(_, *_)):
            return {"enum": [*kind.choices]}
        case keys.Text(form=(form, _)):
            return {"type": "string", "pattern": f"^{form}$"}
        case keys.Text():
            return {"type": "string"} | ({} if kind.empty else {"minLength": 1})
        case keys.Whole() | keys.Number():
            low = "exclusiveMinimum" if isinstance(kind, keys.Number) and kind.more else "minimum"
            schema: Schema = {
                "type": ["integer" if isinstance(kind, keys.Whole) else "number", "string"],
                **_FROM_ENVIRONMENT,
            }
            if kind.minimum > -keys.MAX_INT:
                schema[low] = kind.minimum
            if isinstance(kind, keys.Whole) and kind.maximum < keys.MAX_INT:
                schema["maximum"] = kind.maximum
            return schema
        case keys.Flag():
            return {"type": ["boolean", "string"], **_FROM_ENVIRONMENT}
        case keys.MappingOf():
            return {"type": "object"} | ({"additionalProperties": _value_schema(kind.values)} if kind.values else {})
        case keys.ListOf():
            return {"type": "array", "items": _value_schema(kind.item)}
        case keys.TextOrNumber():
            return {"type": ["string", "number", "boolean"]}
        case keys.OneOf():
            return {"anyOf": [*map(_value_schema, kind.types)]}
        case keys.Sections():
            return {"type": "array", "items": _section_schema(kind.section)}
    raise TypeError(f"no schema for {kind!r}")
