# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import shlex

from nodepool.plan.explained import Moment
from nodepool.web.pages.details import ShownFact, fact, log_commands, moments
from nodepool.web.pages.frame import CellText


def test_facts() -> None:
    assert fact("State", "failed", css="state") == ShownFact("State", [CellText("failed")], "state bad")
    assert fact("Node", "1", "nodes/1") == ShownFact("Node", [CellText("1", "nodes/1")])
    assert fact("Zone", None) == fact("Zone", "") == ShownFact("Zone", [])
    assert fact("Priority", 0).parts == [CellText("0")]


def test_time_between_moments() -> None:
    first, second = moments([Moment(1000.0, "building"), Moment(1090.0, "ready", "x", "done")])
    assert (first.after, first.css) == ("", "busy")
    assert (second.after, second.css, second.code, second.text) == ("1 min later", "good", "x", "done")


def test_commands_are_safe_to_paste() -> None:
    """Ids come from other programs."""
    assert log_commands("node: 0000000001")[0] == "journalctl -u nodepool-launcher --grep 'node: 0000000001'"
    for line in log_commands("node: '; rm -rf / #\"$(x)"):
        assert shlex.split(line)[0] in ("journalctl", "grep")
        assert ";" not in shlex.split(line)
