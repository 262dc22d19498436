# SPDX-License-Identifier: Apache-2.0
"""Add up the JUnit files of a test run and print one line: ``N passed, N failed, N skipped``.

Exit code 1 when a test failed, 2 when no test ran (a run that tested nothing must not look green).
"""

from __future__ import annotations

import sys
from pathlib import Path
from xml.etree import ElementTree


def count(place: Path) -> tuple[int, int, int]:
    """The numbers of passed, failed and skipped tests in a JUnit file, or all of a directory; an error is a failure."""
    total = failed = skipped = 0
    for path in [place] if place.is_file() else sorted(place.glob("*.xml")):
        for suite in ElementTree.parse(path).getroot().iter("testsuite"):
            total += int(suite.get("tests", "0"))
            failed += int(suite.get("failures", "0")) + int(suite.get("errors", "0"))
            skipped += int(suite.get("skipped", "0"))
    return max(total - failed - skipped, 0), failed, skipped


def main() -> int:
    """Print the sum for the directory in the first argument. Returns the exit code."""
    passed, failed, skipped = count(Path(sys.argv[1]))
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    if failed:
        return 1
    return 0 if passed else 2


if __name__ == "__main__":
    sys.exit(main())
