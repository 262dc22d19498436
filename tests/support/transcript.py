# SPDX-License-Identifier: Apache-2.0
"""Commands and their output in a page of the documentation, and how they are compared with what commands say now."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

_BLOCK: Final = re.compile(r"^\.\. code-block:: console\n\n((?:   .*\n|\n)+)", re.MULTILINE)
#: What is another one each time, and what stands for it in a comparison.
_VARIABLE: Final = (
    (re.compile(r"\d{4}-\d\d-\d\d(?= )"), "DATE"),
    (re.compile(r"\b(?:\d\d:)+\d\d\b"), "TIME"),
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"), "UUID"),
    (re.compile(r"\b[0-9a-f]{8}[0-9a-f-]*…"), "UUID"),
    (re.compile(r"\b(?:[0-9a-f]{32}|[0-9a-f]{12})\b"), "HEX"),
    (re.compile(r"\b\d+\.\d+\.\d+(?:\.dev\d+)?(?![\d.])"), "VERSION"),
    (re.compile(r"\b(?:now|(?:in )?\d+ (?:s|min|h|d)(?: \d+ (?:s|min|h))?)(?![\w/])"), "AGE"),
    (re.compile(r"DATE TIME"), "TIME"),
    (re.compile(r"\bfailed \d+ times"), "failed N times"),
    (re.compile(r"\b(?:listing|creating|deleting|showing) (?:a )?\w+ failed"), "CALL failed"),
    (re.compile(r"(?<=l1  ) *\d+\b"), "PID"),
    # Deletions that are tried again are locked now and then.
    (re.compile(r"\b(?:un)?locked\b|(?<=Locked {9})(?:yes|no)"), "LOCK"),
    # Which pool is the last to decline a request.
    (re.compile(r"\bl1 [\w-]+/[\w-]+"), "POOL"),
)
#: A cell of a table that is cut: where depends on the other columns.
_CUT: Final = re.compile(r"(?:(?<=  )|^)((?:\S| (?=\S))+)…", re.MULTILINE)
_CUT_KEPT: Final = 10


class Said(NamedTuple):
    """A command of a page, with what it says there."""

    arguments: list[str]
    output: str


def transcript(page: str) -> list[Said]:
    """All commands ``$ nodepool ...`` of a page, in order."""
    found: list[Said] = []
    for block in _BLOCK.findall(page):
        for part in re.split(r"^   \$ nodepool ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            lines = [line.removeprefix("   ").rstrip() for line in output.splitlines()]
            found.append(Said(shlex.split(command), "\n".join(lines).strip("\n")))
    return found


def rewrite(page: Path, run: Callable[[list[str]], str]) -> None:
    """Put the present output of all commands into a page."""

    def block(match: re.Match[str]) -> str:
        lines = []
        for command in re.findall(r"^   (\$ nodepool .*)$", match[1], re.MULTILINE):
            output = run(shlex.split(command.removeprefix("$ nodepool ")))
            lines += [command, *output.splitlines()]
        return ".. code-block:: console\n\n" + "".join(f"   {line}".rstrip() + "\n" for line in lines) + "\n"

    page.write_text(_BLOCK.sub(block, page.read_text(encoding="utf-8")), encoding="utf-8")


def comparable(text: str) -> list[str]:
    """The lines of a text, each once and in their own order, without what is another one each time."""
    text = _CUT.sub(lambda match: f"{match[1][:_CUT_KEPT]}…", text)
    for variable, word in _VARIABLE:
        text = variable.sub(word, text)
    return sorted({" ".join(line.split()) for line in text.strip().splitlines()})
