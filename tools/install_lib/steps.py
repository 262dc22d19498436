# SPDX-License-Identifier: Apache-2.0
"""A step of an installation, and how steps are gone through."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple, Protocol


class Look(NamedTuple):
    """What a step found.

    :param todo: what it is going to do; empty = nothing. :param remark: what is to be known of what stays.
    """

    todo: str = ""
    remark: str = ""


class Step(Protocol):
    """One thing that is to be so. It says what is not so, and changes only that."""

    @property
    def name(self) -> str:
        """The thing, as it is called in a line."""

    def look(self) -> Look:
        """What is to be done. Changes nothing."""

    def do(self) -> None:
        """Do it. Blocks. :raises InstallError: it cannot be done."""


def go(steps: Iterable[Step], say: Callable[[str], None], dry_run: bool, done: Callable[[], None]) -> int:
    """Go through the steps. Blocks. Returns how many changed something, or would.

    :param done: called after each change. :raises InstallError: from the step that failed.
    """
    count = 0
    for step in steps:
        found = step.look()
        if not found.todo:
            say(f"ok: {step.name}{f' ({found.remark})' if found.remark else ''}")
            continue
        count += 1
        say(f"{'would ' if dry_run else ''}{found.todo}")
        if not dry_run:
            try:
                step.do()
            finally:
                # Also after half of it: what was written has to be known.
                done()
    return count


def free_name(path: Path, suffix: str) -> Path:
    """A name beside a path that nothing has: ``path.old``, then ``path.old.1`` and so on."""
    name = path.with_name(f"{path.name}.{suffix}")
    number = 0
    while name.exists() or name.is_symlink():
        number += 1
        name = path.with_name(f"{path.name}.{suffix}.{number}")
    return name
