# SPDX-License-Identifier: Apache-2.0
"""The table of ``nodepool check``."""

from __future__ import annotations

import json

from nodepool.driver.framework.check_result import CheckResult
from nodepool.listing.checks import check_table
from nodepool.listing.table import render

RESULTS = {
    "zookeeper": [CheckResult("connection", True, "connected to zk1:2281")],
    "provider cloud-1": [
        CheckResult("label small", False, "the cloud has no flavor named 'x'", "correct flavor-name"),
        CheckResult("quota", True, "10 instances", "raise it"),
    ],
}


def test_rows() -> None:
    assert json.loads(render(check_table(RESULTS), "json"))[1:] == [
        {
            "result": "failed",
            "where": "provider cloud-1",
            "subject": "label small",
            "text": "the cloud has no flavor named 'x'",
            "remedy": "correct flavor-name",
        },
        {
            "result": "warning",
            "where": "provider cloud-1",
            "subject": "quota",
            "text": "10 instances",
            "remedy": "raise it",
        },
    ]


def test_colours() -> None:
    column = check_table(RESULTS).columns[0]
    assert [column.style(status) for status in ("ok", "warning", "failed")] == ["green", "yellow", "red"]
