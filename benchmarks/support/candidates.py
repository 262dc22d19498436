# SPDX-License-Identifier: Apache-2.0
"""What is measured: our launcher, the released one, and a stand-in that shows what the load alone costs."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.support.launcher import OUR_COMMAND

LEGACY_VARIABLE = "NODEPOOL_LEGACY_VENV"
HOW_TO_MAKE_LEGACY = f"""\
The released package is measured from a virtualenv of its own. To make one:

    python3 -m venv VENV
    VENV/bin/pip install 'setuptools<81' cachetools nodepool==11.0.0

and name it with --legacy VENV or {LEGACY_VARIABLE}=VENV."""


@dataclass(frozen=True)
class Candidate:
    """Something that serves requests.

    :param command: starts it; takes ``-c FILE -f --no-webapp``.
    """

    name: str
    command: tuple[str, ...]


OURS = Candidate("ours", OUR_COMMAND)
FLOOR = Candidate("floor", (sys.executable, "-m", "benchmarks.support.mock_launcher"))


def legacy(virtualenv: str | None) -> Candidate:
    """The released launcher. :raises SystemExit: it is not there; the text says how to make it."""
    path = virtualenv or os.environ.get(LEGACY_VARIABLE)
    if not path:
        raise SystemExit(HOW_TO_MAKE_LEGACY)
    command = Path(path) / "bin" / "nodepool-launcher"
    if not command.exists():
        raise SystemExit(f"{command} does not exist.\n{HOW_TO_MAKE_LEGACY}")
    return Candidate("legacy", (str(command),))
