# SPDX-License-Identifier: Apache-2.0
"""Each file of the launcher, of what it shares with other daemons, and of ZooKeeper has a test file of its name.

For ``nodepool/zk/locks.py`` that is ``test_locks.py`` in ``tests/unit/zk`` or, where it takes a real server, in
``tests/integration/zk``.
"""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("launcher", "runtime", "zk")
#: Files that have none yet. The list only shrinks: a file that has one by now must not stand here.
MISSING: set[str] = set()


def without_test() -> set[str]:
    files = [path for package in PACKAGES for path in (ROOT / "nodepool" / package).rglob("*.py")]
    assert files
    lacking = set()
    for path in files:
        inside = path.relative_to(ROOT / "nodepool")
        places = [ROOT / "tests" / kind / inside.parent / f"test_{path.name}" for kind in ("unit", "integration")]
        if path.name != "__init__.py" and not any(place.exists() for place in places):
            lacking.add(str(inside))
    return lacking


def test_each_file_has_a_test_of_its_name() -> None:
    assert without_test() - MISSING == set()


def test_list_of_the_missing_shrinks() -> None:
    assert MISSING - without_test() == set()
