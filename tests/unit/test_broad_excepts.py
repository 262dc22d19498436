# SPDX-License-Identifier: Apache-2.0
"""Clauses that catch whatever is raised: few, each with its reason.

For items of which one must not affect the others, passes of threads, listeners, and work that is undone after an error
there is `nodepool.guard`; for calls of drivers the gateway.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import nodepool

TOP = Path(nodepool.__file__).parent
SIMULATORS = TOP.parent / "simulators"
BROAD = re.compile(r"^\s*except\b.*\b(Exception|BaseException|ERRORS)\b.*:|^\s*except\s*:")

#: The most there may be. A clause that is not needed any more lowers it.
MOST = 39


def clauses() -> Iterator[tuple[str, str]]:
    """File, and the clause with the lines around it in which its reason may stand."""
    for top, within in ((TOP, TOP), (SIMULATORS, TOP.parent)):
        for path in sorted(top.rglob("*.py")):
            lines = path.read_text(encoding="utf-8").splitlines()
            for number, line in enumerate(lines):
                if BROAD.match(line):
                    yield path.relative_to(within).as_posix(), "\n".join(lines[max(0, number - 2) : number + 3])


def test_they_are_few() -> None:
    assert len(list(clauses())) <= MOST


def test_each_has_its_reason() -> None:
    """A comment next to it."""
    assert [(file, text) for file, text in clauses() if "#" not in text] == []


def test_clauses_are_found() -> None:
    found = [
        "except Exception:",
        "except (ValueError, Exception) as e:",
        "except BaseException:",
        "except:",
        "except ERRORS:",
    ]
    others = ["except ValueError:", "except ZKException as error:", "# except Exception:"]
    assert [line for line in [*found, *others] if BROAD.match(line)] == found
