# SPDX-License-Identifier: Apache-2.0
"""What `tests.support.small_dib` made, and which of its processes still run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.support.small_dib import MARK


def read_journal(file: Path) -> list[dict[str, Any]]:
    """What `tests.support.small_dib` noted, in order; a last line may be incomplete."""
    if not file.exists():
        return []
    found = []
    for line in file.read_text(encoding="utf-8").splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def built_files(journal: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Name of each file that was made -> its MD5."""
    return {f"{line['built']}.{name}": md5 for line in journal if "built" in line for name, md5 in line["md5"].items()}


def processes_of(directory: Path) -> list[str]:
    """Processes that builds of this run started, and that have not ended."""
    mark = f"{MARK}={directory}".encode()
    found = []
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                environment = (path / "environ").read_bytes().split(b"\0")
                words = (path / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if mark in environment and words != [b""]:
                found.append(f"{path.name} {b' '.join(words).decode(errors='replace').strip()[:200]}")
    return found
