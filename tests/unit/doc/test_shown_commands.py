# SPDX-License-Identifier: Apache-2.0
"""Commands that the documentation shows are taken by the programs; what they name in the source is there."""

# argparse has no public list of its subparsers and options.
# ruff: noqa: SLF001
from __future__ import annotations

import argparse
import configparser
import contextlib
import importlib
import io
import re
import shlex
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[3]
#: Where operators read commands that they copy.
PLACES: Final = ("README.rst", "TESTING.rst", "doc/source/**/*.rst", "etc/**/*", "releasenotes/*.rst")
#: What stands before the program on a line, and means nothing to it.
_PREFIX: Final = re.compile(r"^(?:\$ |# |sudo (?:-u \w+ )?|runuser -u \w+ -- |[A-Z_]+=\S+ |/opt/nodepool/bin/)+")
#: Where a shell ends a command.
_END: Final = {"|", ">", ">>", "<", ";", "&&", "||", "&", "#"}


class Shown(NamedTuple):
    """A command of a page."""

    page: str
    text: str
    #: It stands in a block, to be typed as it is. The others are parts of sentences, and may lack arguments.
    whole: bool


@cache
def programs() -> Mapping[str, argparse.ArgumentParser]:
    """Each program that an installation has, with its parser."""
    settings = configparser.ConfigParser()
    settings.read(ROOT / "setup.cfg")
    found = {}
    for line in filter(None, settings["options.entry_points"]["console_scripts"].split("\n")):
        name, _, place = line.partition("=")
        found[name.strip()] = importlib.import_module(place.strip().partition(":")[0]).make_parser()
    return found


@cache
def commands(program: str) -> Mapping[str, argparse.ArgumentParser]:
    """Name -> parser of each command of a program; empty if it has none."""
    actions = (action for action in programs()[program]._actions if isinstance(action, argparse._SubParsersAction))
    return next((action.choices for action in actions), {})


def shown() -> Iterator[Shown]:
    """All commands of all pages."""
    for place in PLACES:
        for path in sorted(ROOT.glob(place)):
            if path.is_file() and path.suffix in {".rst", ".yaml", ".service", ".conf"}:
                yield from of_page(str(path.relative_to(ROOT)), path.read_text(encoding="utf-8"))


def of_page(page: str, text: str) -> Iterator[Shown]:
    """The commands of one page."""
    starts = re.compile(rf"(?:{'|'.join(map(re.escape, programs()))})(?= |$)")
    for literal in re.findall(r"(?<!`)``([^`]+)``(?!`)", text):
        command = _PREFIX.sub("", " ".join(literal.split()))
        if starts.match(command):
            yield Shown(page, command, whole=False)
    for line in re.findall(r"^ {3,}(?:ExecStart=)?(\S.*)$", text, re.MULTILINE):
        command = _PREFIX.sub("", line)
        # A synopsis, or the first words of a sentence.
        if starts.match(command) and not re.search(r"\[-|\.\.\.|[.:;,]$|``", command):
            yield Shown(page, command, whole=line.startswith("$ "))


def words(text: str) -> list[str]:
    """The words of a command up to where the shell ends it."""
    found: list[str] = []
    for word in shlex.split(text, comments=False):
        if word in _END:
            break
        found.append(word.removesuffix(";"))
    return found


def mistake(command: Shown) -> str:
    """What the program would not take; empty = it would take it."""
    program, *arguments = words(command.text)
    if command.whole:
        return _refusal(program, arguments)
    return _unknown(program, [word.strip("[]|") for word in arguments])


def _refusal(program: str, arguments: list[str]) -> str:
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            programs()[program].parse_args(arguments)
    except SystemExit as error:
        return said.getvalue() if error.code else ""
    return ""


def _unknown(program: str, arguments: list[str]) -> str:
    parser = programs()[program]
    names = commands(program)
    command = next((word for word in arguments if re.fullmatch(r"[a-z][a-z-]+", word)), None) if names else None
    if command is not None:
        if command not in names:
            return f"there is no command {command}"
        parser = names[command]
    known = {*parser._option_string_actions, *programs()[program]._option_string_actions}
    options = [word.partition("=")[0] for word in arguments if re.match(r"--?[a-z]", word)]
    # argparse takes the beginning of an option for it.
    return " ".join(f"there is no option {x}" for x in options if not any(name.startswith(x) for name in known))


def test_commands_are_taken() -> None:
    """Each command of each page: those in blocks as they stand, those in sentences as far as they go."""
    found = list(shown())
    assert len(found) > 150
    assert {f"{command.page}: {command.text}": wrong for command in found if (wrong := mistake(command))} == {}


def test_examples_of_the_help_are_taken() -> None:
    """The examples after each help text."""
    found: list[Shown] = []
    for name in programs():
        for word, parser in commands(name).items():
            kind, _, text = (parser.epilog or "").partition(": ")
            for example in text.split("; ") if kind in {"example", "examples"} else ():
                found += of_page(f"{name} {word}", f"   $ {example}\n")
    assert len(found) > 30
    assert {f"{command.page}: {command.text}": wrong for command in found if (wrong := mistake(command))} == {}


def test_names_of_the_source_are_there() -> None:
    """Environments of tox; ``tools/...``, ``etc/...``, ``doc/source/...``; modules that are run."""
    tox = configparser.ConfigParser(interpolation=None)
    tox.read(ROOT / "tox.ini")
    there = {section.removeprefix("testenv:") for section in tox.sections()} | {"py3"}
    for page in (ROOT / "README.rst", *(ROOT / "doc" / "source").rglob("*.rst")):
        text = page.read_text(encoding="utf-8")
        assert set(re.findall(r"\btox -e ([a-z][\w-]*)", text)) <= there, page
        for name in re.findall(r"(?<![\w/.])((?:tools|etc|doc/source|tests|benchmarks|nodepool)/[\w./-]*\w)", text):
            assert (ROOT / name).exists(), f"{page.name}: {name}"
        for module in re.findall(r"python3? -m ((?:tests|benchmarks|tools|nodepool)[\w.]*\w)", text):
            path = ROOT / module.replace(".", "/")
            assert path.with_suffix(".py").exists() or (path / "__main__.py").exists(), f"{page.name}: {module}"


def test_no_line_installs_another_package() -> None:
    """On PyPI the name ``nodepool`` belongs to the released Nodepool: lines name a checkout."""
    places = (ROOT / "README.rst", *(ROOT / "doc" / "source").rglob("*.rst"), *(ROOT / "nodepool").rglob("*.py"))
    wrong = re.compile(r"pip3? install (?:-\S+ )*[\"']?nodepool\b")
    assert [str(path) for path in places if wrong.search(path.read_text(encoding="utf-8"))] == []
