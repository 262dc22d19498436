# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from nodepool.listing.problems import served_line
from nodepool.plan.config_diff import ServedConfig

#: 2026-11-23 12:00:00 UTC
NOON = 1795435200.0


@pytest.mark.parametrize(
    ("found", "line"),
    [
        (
            ServedConfig("l1", 42, True, "9f3c", "/n.yaml", NOON - 7200),
            "launcher l1 (42) serves this file, loaded 10:00:00 (2 h)",
        ),
        (
            ServedConfig("l1", 42, False, "1a2b", "/n.yaml", NOON - 7200),
            "launcher l1 (42) serves another file (1a2b), loaded 10:00:00 (2 h); "
            "it loads /n.yaml by itself when that changes there",
        ),
        (
            ServedConfig("l1", 42, False, "1a2b", "/n.yaml", None, "n.yaml:5: not YAML\x1b", NOON - 60),
            "launcher l1 (42) serves another file (1a2b); its last reload 11:59:00 (1 min) failed: n.yaml:5: not YAML ",
        ),
        (ServedConfig("l1"), "launcher l1 does not report what it serves, like all launchers of Nodepool 11"),
    ],
)
def test_line(found: ServedConfig, line: str) -> None:
    assert served_line(found, NOON) == line
