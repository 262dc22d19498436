# SPDX-License-Identifier: Apache-2.0
"""The tests of a run, from its JUnit file: which failed, and with what text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

#: Lines of a failure that are shown, counted from its end, and of what it printed and logged.
LINES = 40
CAPTURED_LINES = 40
#: The line above what was captured, e.g. "---- Captured Out ----", where nothing was. JUnit files have it all the same.
HEAD = r"-+ Captured (?:Log|Out|Err) -+"
NOTHING = re.compile(rf"{HEAD}\s*(?={HEAD}|\Z)")
#: More failures than this are only named: whoever shows the output may keep a part of it only.
SHOWN = 10
#: A line that is longer is cut.
COLUMNS = 400


@dataclass(frozen=True)
class FailedTest:
    """A test that failed.

    :param node: its node id for pytest, None if none of the files is that of the test.
    :param text: the traceback. :param captured: what it printed and logged.
    """

    environment: str
    name: str
    node: str | None
    text: str
    captured: tuple[str, ...] = ()


def cases(path: Path) -> Iterator[ElementTree.Element]:
    """The elements ``testcase`` of a JUnit file. There are none if there is no file, or no whole one."""
    try:
        yield from ElementTree.parse(path).getroot().iter("testcase")
    except (FileNotFoundError, ElementTree.ParseError):
        return


def has_failed(case: ElementTree.Element) -> bool:
    """Did it fail, or one of its fixtures?"""
    return case.find("failure") is not None or case.find("error") is not None


def name_of(case: ElementTree.Element) -> str:
    """``tests.unit.test_a::test_b``."""
    return "::".join(part for part in (case.get("classname"), case.get("name")) if part)


def node_id(case: ElementTree.Element, top: Path) -> str | None:
    """The node id that pytest takes, e.g. ``tests/unit/test_a.py::TestClass::test_b``; None: no such file.

    :param top: the directory that pytest ran in.
    """
    parts = (case.get("classname") or "").split(".")
    for length in range(len(parts), 0, -1):
        file = "/".join(parts[:length]) + ".py"
        if (top / file).is_file():
            return "::".join([file, *parts[length:], case.get("name", "")])
    return None


def failed_tests(path: Path, top: Path) -> list[FailedTest]:
    """The tests that failed in a JUnit file, each once. The name of the file is that of the environment."""
    found: dict[str, FailedTest] = {}
    for case in cases(path):
        if has_failed(case):
            texts = [_text(part) for kind in ("failure", "error") for part in case.findall(kind)]
            parts = [part for kind in ("system-out", "system-err") for part in case.findall(kind)]
            captured = tuple(text for part in parts if (text := NOTHING.sub("", part.text or "").strip()))
            name, earlier = name_of(case), found.get(name_of(case))
            # A test that failed, and then one of its fixtures, is there twice.
            found[name] = FailedTest(
                path.stem,
                name,
                node_id(case, top),
                "\n".join([*([earlier.text] if earlier else []), *texts]),
                captured or (earlier.captured if earlier else ()),
            )
    return list(found.values())


def _text(part: ElementTree.Element) -> str:
    return part.text or part.get("message") or ""


def tail(text: str, count: int) -> list[str]:
    """The last lines of a text, after a line that says how many were left out."""
    lines = [line if len(line) <= COLUMNS else f"{line[:COLUMNS]} ..." for line in text.rstrip().splitlines()]
    left_out = len(lines) - count
    return lines if left_out <= 0 else [f"... {left_out} lines before", *lines[-count:]]


def described(tests: Sequence[FailedTest]) -> list[str]:
    """For each of the tests its name and the end of its failure; the last ones of many by name only."""
    lines: list[str] = []
    for test in tests[:SHOWN]:
        lines += [f"--- {test.environment}: {test.node or test.name}", *tail(test.text, LINES)]
        for text in test.captured:
            lines += _captured(text)
    more = tests[SHOWN:]
    return [*lines, *([f"--- {len(more)} more:"] if more else []), *names(more)]


def names(tests: Iterable[FailedTest]) -> list[str]:
    """Environment and node id of each."""
    return [f"{test.environment}: {test.node or test.name}" for test in tests]


def _captured(text: str) -> list[str]:
    return ["captured:", *(f"    {line}" for line in tail(text, CAPTURED_LINES))]
