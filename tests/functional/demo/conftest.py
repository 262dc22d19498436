# SPDX-License-Identifier: Apache-2.0
"""The programs that a demonstration runs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import pytest

MODULES: Final = {"": "cli", "-launcher": "launcher", "-builder": "builder", "-web": "web"}


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """Their directory. They are run by the interpreter of the tests."""
    directory = tmp_path / "bin"
    directory.mkdir()
    for name, module in MODULES.items():
        program = directory / f"nodepool{name}"
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -m nodepool.cmd.{module} "$@"\n')
        program.chmod(0o755)
    return directory
