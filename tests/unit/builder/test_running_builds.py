# SPDX-License-Identifier: Apache-2.0
"""What is being built now."""

from __future__ import annotations

from nodepool.builder.build_progress import BuildProgress
from nodepool.builder.running_builds import RunningBuilds


def test_life_of_a_build() -> None:
    """Begin, each step and the end are told of."""
    running, told = RunningBuilds(), []
    running.on_change = lambda: told.append(running.as_status())
    progress = BuildProgress(100.0)
    with running.running("debian", "0123", progress, 60.0):
        assert running.ids() == {"0123"}
        progress.read("dib-run-parts Running /x/root.d/10-a", 103.0)
        running.step("0123", progress)
    assert told == [
        {"debian/0123": {"step": "starting", "since": 100.0, "step_since": 100.0, "estimate": 60.0}},
        {"debian/0123": {"step": "root", "since": 100.0, "step_since": 103.0, "estimate": 60.0}},
        {},
    ]
    assert running.current() == []
