# SPDX-License-Identifier: Apache-2.0
"""Short runs under all kinds of faults, in each CI run: with OpenStack and Kubernetes always, with the others by turns.

``CHAOS_CLOUDS=aws,azure,gce,ibmvpc`` names others in place of those whose turn it is at a commit. ``tox -e chaos`` has
many and longer runs.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.seeded_run import seeded_run


class Run(NamedTuple):
    """:param made: what the simulator counts of machines; ``seconds``: of faults."""

    cloud: str
    made: str
    seconds: float


#: In each run of the tests.
ALWAYS = (Run("openstack", "servers created", 45.0), Run("kubernetes", "namespaces created", 12.0))
RUNS = (
    Run("aws", "instances created", 20.0),
    Run("azure", "VMs made", 15.0),
    Run("gce", "instances made", 15.0),
    Run("ibmvpc", "instances made", 15.0),
)


#: One of them at each commit.
TURNS = 4
ROOT = Path(__file__).resolve().parents[2]


def whose_turn(commit: str, named: str = "") -> Sequence[Run]:
    """Pure.

    :param commit: its hash; "" = it is not known: all clouds have theirs.
    :param named: clouds in place of those whose turn it is.
    """
    if named:
        return [run for run in RUNS if run.cloud in named.split(",")]
    return [run for place, run in enumerate(RUNS) if not commit or int(commit, 16) % TURNS == place % TURNS]


def present_commit() -> str:
    command = ["git", "rev-parse", "HEAD"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return found.stdout.strip() if found.returncode == 0 else ""


def test_each_cloud_has_a_turn() -> None:
    turns = [whose_turn(commit) for commit in ("a0", "a1", "a2", "a3")]
    assert sorted(run for turn in turns for run in turn) == sorted(RUNS)
    assert whose_turn("") == list(RUNS)
    assert [run.cloud for run in whose_turn("a0", "azure,gce")] == ["azure", "gce"]


@pytest.mark.timeout(460)
@pytest.mark.parametrize(
    "run", [*ALWAYS, *whose_turn(present_commit(), os.environ.get("CHAOS_CLOUDS", ""))], ids=lambda run: run.cloud
)
def test_nothing_is_lost_and_nothing_leaks(tmp_path: Path, run: Run) -> None:
    """F-1, F-2, F-4, F-5, MN-2 to MN-4, CM-7, CM-8, GC-5, KU-9 to KU-12: launchers, ZooKeeper, cloud and clients fail,
    with lost answers, lag, watches that expire, and operations that fail; all invariants hold."""
    report = seeded_run("tests.chaos", tmp_path, "--cloud", run.cloud, "--seconds", str(run.seconds))
    figures = report["figures"]
    assert report["violations"] == []
    assert figures["jobs"]["done"] > 0
    assert figures["jobs"]["done with nodes of several pools"] > 0 or run.cloud != "openstack"
    assert figures["cloud"][run.made] > 0
    assert figures["writes of launchers"]["with its lock"] > 0
