# SPDX-License-Identifier: Apache-2.0
"""The table of ``nodepool check``."""

from __future__ import annotations

import io
import json
import re

from nodepool.driver.framework.checks import CheckResult
from nodepool.listing.problems import check_table, print_checks
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


def test_terminal() -> None:
    """Each text as a whole, below it the remedy, and nothing that could do more than be printed."""
    stream = io.StringIO()
    long = CheckResult("host\x1b[2J", False, "cannot connect " * 30, "start it")
    print_checks({**RESULTS, "provider lab": [long]}, stream)
    text = re.sub(r"\x1b\[[0-9;]*m", "", stream.getvalue())
    assert [line.split() for line in text.splitlines()[:2]] == [
        ["zookeeper"],
        ["ok", "connection:", "connected", "to", "zk1:2281"],
    ]
    assert text.count("cannot") == 30
    assert "-> correct flavor-name" in text
    assert "\x1b" not in text
