# SPDX-License-Identifier: Apache-2.0
"""The released Nodepool 11.0.0, run as it is from a virtualenv of its own."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

VARIABLE = "NODEPOOL_LEGACY_VENV"
VERSION = "11.0.0"
HOW_TO_MAKE = f"""\
The released package runs in a virtualenv of its own. tools/bench and tox make one; to make it by hand:

    python3 -m venv VENV
    VENV/bin/pip install 'setuptools<81' cachetools nodepool=={VERSION}

and name it with --legacy VENV or {VARIABLE}=VENV."""


class NotInstalled(Exception):
    """There is no such virtualenv; the text says how to make it."""


@dataclass(frozen=True)
class ReleasedPrograms:
    """Its programs.

    :param launcher: takes ``-c FILE -f --no-webapp``. :param tool: takes ``-c FILE list``.
    :param builder: takes ``-c FILE -f``.
    """

    launcher: Path
    tool: Path
    builder: Path


def released_programs(virtualenv: str | Path | None = None) -> ReleasedPrograms:
    """Where they are.

    :param virtualenv: None: what the environment variable names.
    :raises NotInstalled: they are not there.
    """
    path = virtualenv or os.environ.get(VARIABLE)
    if not path:
        raise NotInstalled(HOW_TO_MAKE)
    programs = Path(path).absolute() / "bin"
    launcher = programs / "nodepool-launcher"
    if not launcher.exists():
        raise NotInstalled(f"{launcher} does not exist.\n{HOW_TO_MAKE}")
    return ReleasedPrograms(launcher, programs / "nodepool", programs / "nodepool-builder")
