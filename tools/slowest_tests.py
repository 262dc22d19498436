# SPDX-License-Identifier: Apache-2.0
"""Print the slowest tests of a run from its JUnit files: ``python tools/slowest_tests.py .tox/junit [COUNT]``."""

from __future__ import annotations

import sys
from pathlib import Path
from xml.etree import ElementTree


def slowest(path: Path, count: int) -> list[str]:
    """``"12.3 s  module::test"`` for the slowest tests in a JUnit file, or in all of a directory, slowest first."""
    files = sorted(path.glob("*.xml")) if path.is_dir() else [path] if path.exists() else []
    cases = [case for file in files for case in ElementTree.parse(file).getroot().iter("testcase")]
    times = sorted(((float(case.get("time", "0")), case) for case in cases), key=lambda found: -found[0])
    return [f"{seconds:7.1f} s  {case.get('classname')}::{case.get('name')}" for seconds, case in times[:count]]


def main() -> int:
    """Print those of the first argument. Returns the exit code."""
    print("\n".join(slowest(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 30)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
