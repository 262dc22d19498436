# SPDX-License-Identifier: Apache-2.0
"""The reference of the programs, made of their `argparse` parsers.

In a page::

    .. command-line:: nodepool.cmd.launcher

becomes the synopsis and the options of the program whose module that is. It has a function ``make_parser``.
Of a program with commands, each command gets a section after them. Options that all commands share with the program
are described once, and so are those that many commands share.
"""

from __future__ import annotations

import argparse
import importlib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

DIRECTIVE: Final = re.compile(r"^\.\. command-line:: (\S+)\n", re.MULTILINE)
_WIDTH: Final = 100
#: Commands that have the same option, from which on it is described once.
_MANY: Final = 5
#: What reStructuredText would take for mark-up.
_MARKUP: Final = re.compile(r"([\\*`|<>]|_(?=\W|$))")


def parser_of(module: str) -> argparse.ArgumentParser:
    """The parser of a program, by the name of its module."""
    parser: argparse.ArgumentParser = importlib.import_module(module).make_parser()
    return parser


def commands_of(parser: argparse.ArgumentParser) -> Mapping[str, argparse.ArgumentParser]:
    """Name -> parser of each command of a program, aliases included; empty if the program has none."""
    actions = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    return next((action.choices for action in actions), {})


def expand(text: str) -> str:
    """A page with its descriptions."""
    return DIRECTIVE.sub(lambda match: "\n".join(_program(parser_of(match[1]))) + "\n", text)


def _program(parser: argparse.ArgumentParser) -> Iterator[str]:
    yield from _section("Synopsis", "-")
    yield from _literal(_usage(parser).splitlines())
    yield parser.description or ""
    yield ""
    yield from _section("Options", "-")
    yield from _options(parser)
    commands = commands_of(parser)
    if not commands:
        return
    shared = {option for action in parser._actions for option in action.option_strings}
    common = common_options(commands, shared)
    if common:
        yield from _section("Options of listings", "-")
        yield "The synopsis of a command shows which of these it has."
        yield ""
        for action in common:
            yield from _option(action, argparse.HelpFormatter(parser.prog, width=_WIDTH))
    yield from _section("Commands", "-")
    if "-c" in shared:
        yield "Each command also has ``-h``, ``-c``, ``-s``, ``-l`` and ``--debug``."
        yield "They may stand before the command or after it."
        yield ""
    for command, names in _with_names(commands):
        yield from _section(" or ".join(f"``{name}``" for name in names), "~")
        yield command.description or ""
        yield ""
        yield from _literal(_usage(command).splitlines())
        yield from _options(command, shared, common)
        yield from _examples(command.epilog or "")


def common_options(
    commands: Mapping[str, argparse.ArgumentParser], left_out: Iterable[str] = ()
) -> list[argparse.Action]:
    """Options that are the same in many commands; one of each."""
    hidden = set(left_out)
    found: dict[tuple[str, ...], list[argparse.Action]] = {}
    for command in {id(command): command for command in commands.values()}.values():
        for action in command._actions:
            if action.option_strings and not hidden.intersection(action.option_strings):
                found.setdefault(_look(action), []).append(action)
    return [same[0] for same in found.values() if len(same) >= _MANY]


def _look(action: argparse.Action) -> tuple[str, ...]:
    """What a reader sees of an option."""
    return (_signature(action), action.help or "")


def _with_names(commands: Mapping[str, argparse.ArgumentParser]) -> Iterator[tuple[argparse.ArgumentParser, list[str]]]:
    """Each command once, with all its names."""
    names: dict[int, list[str]] = {}
    for name, command in commands.items():
        names.setdefault(id(command), []).append(name)
    for found in names.values():
        yield commands[found[0]], found


def _options(
    parser: argparse.ArgumentParser, left_out: Iterable[str] = (), common: Iterable[argparse.Action] = ()
) -> Iterator[str]:
    yield f".. program:: {parser.prog}"
    yield ""
    hidden = set(left_out)
    looks = {_look(action) for action in common}
    formatter = argparse.HelpFormatter(parser.prog, width=_WIDTH)
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction) or action.help == argparse.SUPPRESS:
            continue
        if hidden.intersection(action.option_strings) or _look(action) in looks:
            continue
        yield from _option(action, formatter)


def _option(action: argparse.Action, formatter: argparse.HelpFormatter) -> Iterator[str]:
    yield f".. option:: {_signature(action)}"
    yield ""
    yield f"   {_sentence(formatter._expand_help(action) if action.help else '')}"
    yield ""


def _signature(action: argparse.Action) -> str:
    """All names of an option with its value, or the name of an argument."""
    value = action.metavar or action.dest
    word = value if isinstance(value, str) else " ".join(value)
    if action.choices is not None and action.metavar is None:
        word = "{" + ",".join(map(str, action.choices)) + "}"
    if not action.option_strings:
        return word
    if action.nargs == 0:
        return ", ".join(action.option_strings)
    metavar = word if action.metavar or action.choices else word.upper()
    return ", ".join(action.option_strings) + f" {metavar}"


def _usage(parser: argparse.ArgumentParser) -> str:
    formatter = argparse.HelpFormatter(parser.prog, width=_WIDTH)
    formatter.add_usage(parser.usage, parser._actions, parser._mutually_exclusive_groups, prefix="")
    return formatter.format_help().rstrip()


def _examples(epilog: str) -> Iterator[str]:
    kind, colon, text = epilog.partition(":")
    if colon and kind.lower() in {"example", "examples"}:
        yield f"{kind.capitalize()}:"
        yield ""
        lines = text.splitlines()[1:] if text.startswith("\n") else text.strip().split("; ")
        yield from _literal(line.strip() for line in lines)
    elif epilog:
        yield _sentence(epilog)
        yield ""


def _sentence(text: str) -> str:
    text = _MARKUP.sub(r"\\\1", text.strip())
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "?")) else ".")


def _section(title: str, line: str) -> Iterator[str]:
    yield title
    yield line * len(title)
    yield ""


def _literal(lines: Iterable[str]) -> Iterator[str]:
    yield ".. code-block:: text"
    yield ""
    for text in lines:
        yield f"   {text}"
    yield ""


def setup(app: Any) -> dict[str, Any]:
    """For Sphinx. The descriptions are put into the text of a page before it is parsed."""

    def read(app: Any, page: str, source: list[str]) -> None:
        source[0] = expand(source[0])

    app.connect("source-read", read)
    return {"parallel_read_safe": True}
