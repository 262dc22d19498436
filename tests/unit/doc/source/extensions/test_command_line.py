# SPDX-License-Identifier: Apache-2.0
"""The reference of the programs: all of them, whole, and with a man page each."""

from __future__ import annotations

import argparse
import configparser
import re
from pathlib import Path
from typing import Final

import pytest

from doc.source.extensions import command_line

ROOT: Final = Path(__file__).parents[5]
SOURCE: Final = ROOT / "doc" / "source"
PAGES: Final = SOURCE / "reference" / "man"


def programs() -> dict[str, str]:
    """Name of each program that an installation has -> its module."""
    settings = configparser.ConfigParser()
    settings.read(ROOT / "setup.cfg")
    lines = settings["options.entry_points"]["console_scripts"].split("\n")
    return {
        name.strip(): place.strip().partition(":")[0] for name, _, place in (x.partition("=") for x in lines) if name
    }


@pytest.mark.parametrize("program", programs())
def test_each_program_has_a_page_and_a_man_page(program: str) -> None:
    page = (PAGES / f"{program}.rst").read_text(encoding="utf-8")
    assert command_line.DIRECTIVE.findall(page) == [programs()[program]]
    assert f'("reference/man/{program}", "{program}",' in (SOURCE / "conf.py").read_text(encoding="utf-8")
    assert re.search(rf"^   {program}$", (PAGES / "index.rst").read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize("program", programs())
def test_nothing_is_left_out(program: str) -> None:
    """Each command, each option and each argument stands there, with what it means."""
    page = command_line.expand((PAGES / f"{program}.rst").read_text(encoding="utf-8"))
    parser = command_line.parser_of(programs()[program])
    for part in (parser, *command_line.commands_of(parser).values()):
        section = page.partition(f".. program:: {part.prog}\n")[2].partition(".. program::")[0]
        assert section, f"{part.prog} has no section"
        shown = dict(re.findall(r"^\.\. option:: (.*)\n\n   (.*)$", section, re.MULTILINE))
        assert all(len(text) > 3 for text in shown.values()), f"{part.prog} has an option without an explanation"
        for action in part._actions:
            names = [name for name in action.option_strings if name not in parser._option_string_actions]
            if names and action.help != argparse.SUPPRESS:
                assert any(line.startswith(", ".join(names)) for line in shown), f"{part.prog} {names}"


def test_markup_in_a_help_text() -> None:
    """What argparse shows as it is must not become mark-up."""
    parser = argparse.ArgumentParser("lab", epilog="examples: lab --state 'gpu-*'; lab '*'")
    parser.add_argument("--state", help="names, e.g. gpu-*; <pool>_ or `x`", choices=("a", "b"))
    parser.add_argument("--hidden", help=argparse.SUPPRESS)
    text = "\n".join(command_line._options(parser))
    assert ".. option:: --state {a,b}\n\n   Names, e.g. gpu-\\*; \\<pool\\>\\_ or \\`x\\`.\n" in text
    assert "hidden" not in text
    assert [line for line in command_line._examples(parser.epilog or "") if "lab" in line] == [
        "   lab --state 'gpu-*'",
        "   lab '*'",
    ]
