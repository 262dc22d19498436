# SPDX-License-Identifier: Apache-2.0
"""Each driver has the same pages, and its overview leads to all of them."""

from __future__ import annotations

import pytest

from nodepool.driver.registry import KNOWN
from tests.support.launcher import ROOT

DRIVERS = ROOT / "doc" / "source" / "drivers"
PAGES = ("configuration", "behaviour", "troubleshooting")


@pytest.mark.parametrize("driver", sorted(KNOWN))
def test_pages(driver: str) -> None:
    overview = (DRIVERS / driver / "index.rst").read_text(encoding="utf-8")
    there = {path.stem for path in (DRIVERS / driver).glob("*.rst")} - {"index"}
    assert there.issuperset(PAGES)
    _, toctree = overview.split(".. toctree::", 1)
    assert {line.strip() for line in toctree.splitlines()} >= there
