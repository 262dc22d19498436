# SPDX-License-Identifier: Apache-2.0
"""Launches that take long (rule E-10)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nodepool.model.status import LaunchStatus
from nodepool.plan.attention import LEAST_SECONDS, UNKNOWN_SECONDS, described, is_slow, slow, summary

NOW = 1763809000.0
BUILDING = LaunchStatus(
    "0000000001", "small", "build", "building", NOW - 75, NOW - 70, NOW + 3525, "launch-timeout", 4.0, slow=True
)


@pytest.mark.parametrize(
    ("launched", "in_step", "step", "usual", "expected"),
    [
        (LEAST_SECONDS - 1, 1, "build", 4.0, False),
        (LEAST_SECONDS + 1, 1, "build", 4.0, True),
        (75, 75, "build", 60.0, False),
        (241, 1, "build", 60.0, True),
        (UNKNOWN_SECONDS - 1, 50, "build", None, False),
        (UNKNOWN_SECONDS + 1, 50, "build", None, True),
        (61, 61, "call", None, True),
        (61, 59, "call", None, False),
        (61, 61, "call", 600.0, True),
    ],
)
def test_what_takes_long(launched: float, in_step: float, step: str, usual: float | None, expected: bool) -> None:
    """Four times what is usual; a call that the cloud does not answer for a minute, whatever is usual."""
    launch = LaunchStatus("1", "small", step, begun=NOW - launched, since=NOW - in_step, usual=usual)
    assert is_slow(launch, NOW) is expected


def test_a_launch_in_words() -> None:
    assert described(BUILDING, NOW) == (
        "waits for the cloud, which has it and does not run it yet (it is building) for 1 min "
        "(the launch began 1 min ago, usually it takes 4 s; launch-timeout ends the attempt in 58 min)"
    )
    assert described(LaunchStatus("1", "small", "launch", begun=NOW - 20, since=NOW - 20), NOW) == (
        "waits for the driver for 20 s (the launch began 20 s ago)"
    )


def test_launches_of_a_pool() -> None:
    """What most of them wait for; the first is the one that began first."""
    calls = [replace(BUILDING, node=str(number), step="call", begun=NOW - number) for number in (50, 90)]
    found = slow([BUILDING, *calls, replace(BUILDING, slow=False)])
    assert [launch.node for launch in found] == ["90", "0000000001", "50"]
    assert summary(found, 4, NOW) == (
        "3 of 4 launches take long: 2 of them wait for the answer of the cloud to the call that creates it, "
        "up to 1 min (the launch began 1 min ago, usually it takes 4 s; launch-timeout ends the attempt in 58 min)"
    )
    assert summary([BUILDING], 1, NOW).startswith(
        "1 of 1 launch takes long: it waits for the cloud, which has it and does not run it yet, for 1 min (the launch"
    )
