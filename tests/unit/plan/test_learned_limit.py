# SPDX-License-Identifier: Apache-2.0
"""How many nodes a cloud takes that does not tell its quota (rule L-7)."""

from __future__ import annotations

import itertools

from nodepool.plan.launch import PROBE, LearnedLimit


def test_a_node_that_goes_makes_room_at_once() -> None:
    limit = LearnedLimit()
    limit.refused(0.0, 20)
    assert not limit.allows(0.1, 20)
    assert limit.allows(0.2, 19)
    assert not limit.allows(0.3, 20)


def test_probes_come_seldom_while_they_are_refused() -> None:
    limit, now, probes = LearnedLimit(), 0.0, []
    limit.refused(now, 20)
    while now < 200:
        now += 0.5
        if limit.allows(now, 20):
            probes.append(now)
            limit.refused(now + 0.1, 20)
    pauses = [later - earlier for earlier, later in itertools.pairwise(probes)]
    assert probes[0] == PROBE.first_seconds
    assert pauses == sorted(pauses)
    assert pauses[-1] >= PROBE.longest_seconds


def test_one_probe_at_a_time() -> None:
    limit = LearnedLimit()
    limit.refused(0.0, 20)
    assert limit.allows(1.0, 20)
    assert not limit.allows(1.1, 21)


def test_many_refusals_at_once_are_one_trouble() -> None:
    """The launches that were under way when the cloud became full."""
    limit = LearnedLimit()
    for others in (23, 22, 21, 20):
        limit.refused(0.0, others)
    assert limit.nodes == 20
    assert limit.allows(PROBE.first_seconds, 20)
