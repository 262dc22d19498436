# SPDX-License-Identifier: Apache-2.0
"""What is measured: our launcher, the released one, and a stand-in that shows what the load alone costs."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from benchmarks.suite import model
from tests.support.launcher import OUR_BUILDER, OUR_COMMAND
from tests.support.released import NotInstalled, released_programs


@dataclass(frozen=True)
class Candidate:
    """Something that serves requests.

    :param command: starts it; takes ``-c FILE -f --no-webapp``.
    :param tool: the operator's command line, takes ``-c FILE list``; empty = it has none.
    :param builder: starts the image builder; takes ``-c FILE -f``; empty = it has none.
    """

    name: str
    command: tuple[str, ...]
    tool: tuple[str, ...] = ()
    builder: tuple[str, ...] = ()


OURS = Candidate(model.OURS, OUR_COMMAND, (sys.executable, "-m", "nodepool.cmd.cli"), OUR_BUILDER)
FLOOR = Candidate(model.FLOOR, (sys.executable, "-m", "benchmarks.support.mock_launcher"))


def legacy(virtualenv: str | None) -> Candidate:
    """The released launcher. :raises SystemExit: it is not there; the text says how to make it."""
    try:
        programs = released_programs(virtualenv)
    except NotInstalled as error:
        raise SystemExit(str(error)) from None
    return Candidate(model.RELEASED, (str(programs.launcher),), (str(programs.tool),), (str(programs.builder),))
