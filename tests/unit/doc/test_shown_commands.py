# SPDX-License-Identifier: Apache-2.0
"""Commands that the documentation shows are taken by the programs; what they name in the source is there."""

from __future__ import annotations

import configparser
import re

import pytest

from tests.support.shown_commands import ROOT, Shown, commands, mistake, of_page, programs, shown


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


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("   $ nodepool list --state ready | head\n", ""),
        ("   $ nodepool lst\n", "invalid choice"),
        ("   $ nodepool hold\n", "required"),
        ("say ``nodepool hold``", ""),
        ("say ``nodepool holt``", "no command holt"),
        ("say ``nodepool hold --until-tomorrow``", "no option --until-tomorrow"),
        ("say ``nodepool-launcher --drain``", ""),
        ("say ``nodepool-launcher --drained``", "no option --drained"),
    ],
)
def test_wrong_ones_are_found(text: str, wrong: str) -> None:
    (command,) = of_page("a page", text)
    assert wrong in mistake(command)
    assert bool(wrong) == bool(mistake(command))


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
