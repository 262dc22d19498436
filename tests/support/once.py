# SPDX-License-Identifier: Apache-2.0
"""What is made once for a run of the tests, also when several processes run them."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable
from typing import TypeVar

import pytest

T = TypeVar("T")


def once_in_a_run(factory: pytest.TempPathFactory, name: str, make: Callable[[], T]) -> T:
    """The result of ``make``, which is called by the first process that asks; blocks until it has one.

    :param name: of a file, unique. :param make: its result must survive JSON. What it raises is raised, and the next
        process that asks tries again.
    """
    base = factory.getbasetemp()
    # A process of pytest-xdist has a directory of its own in that of the run.
    directory = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    with (directory / name).open("a+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        text = file.read()
        if not text:
            text = json.dumps(make())
            file.write(text)
        made: T = json.loads(text)
        return made
