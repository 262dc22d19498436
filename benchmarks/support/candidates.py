# SPDX-License-Identifier: Apache-2.0
"""What is measured: our launcher, the released one, and a stand-in that shows what the load alone costs."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.suite import model
from tests.support.launcher import OUR_COMMAND

LEGACY_VARIABLE = "NODEPOOL_LEGACY_VENV"
HOW_TO_MAKE_LEGACY = f"""\
The released package is measured from a virtualenv of its own. tools/bench makes one; to make it by hand:

    python3 -m venv VENV
    VENV/bin/pip install 'setuptools<81' cachetools nodepool==11.0.0

and name it with --legacy VENV or {LEGACY_VARIABLE}=VENV."""


@dataclass(frozen=True)
class Candidate:
    """Something that serves requests.

    :param command: starts it; takes ``-c FILE -f --no-webapp``.
    :param tool: the operator's command line, takes ``-c FILE list``; empty = it has none.
    """

    name: str
    command: tuple[str, ...]
    tool: tuple[str, ...] = ()


OURS = Candidate(model.OURS, OUR_COMMAND, (sys.executable, "-m", "nodepool.cmd.cli"))
FLOOR = Candidate(model.FLOOR, (sys.executable, "-m", "benchmarks.support.mock_launcher"))


def legacy(virtualenv: str | None) -> Candidate:
    """The released launcher. :raises SystemExit: it is not there; the text says how to make it."""
    path = virtualenv or os.environ.get(LEGACY_VARIABLE)
    if not path:
        raise SystemExit(HOW_TO_MAKE_LEGACY)
    programs = Path(path).absolute() / "bin"
    command = programs / "nodepool-launcher"
    if not command.exists():
        raise SystemExit(f"{command} does not exist.\n{HOW_TO_MAKE_LEGACY}")
    return Candidate(model.RELEASED, (str(command),), (str(programs / "nodepool"),))
