# SPDX-License-Identifier: Apache-2.0
"""When a launch looks at its pod."""

from __future__ import annotations

import itertools

from nodepool.driver.kubernetes.looks import LONGEST_SECONDS, SHORTEST_SECONDS, AwaitedContent


def looks_until(seconds: float) -> list[float]:
    """When it is looked at, in seconds after it was made, if somebody would look every 10 ms."""
    content, found = AwaitedContent("p"), []
    content.made(100.0)
    for step in range(int(seconds * 100)):
        now = 100.0 + step / 100
        if content.is_due(now):
            found.append(now - 100.0)
            content.looked(now)
    return found


def test_nothing_is_there_before_it_is_made() -> None:
    """KU-3: a look before that would find nothing."""
    assert not AwaitedContent("p").is_due(1e9)


def test_pauses_grow() -> None:
    """KU-3: looks at a pod do not become more with the number of launches, and few if it takes long."""
    found = looks_until(120.0)
    pauses = [after - before for before, after in itertools.pairwise(found)]
    assert found[0] == 0.0
    assert min(pauses) >= SHORTEST_SECONDS - 0.01
    assert max(pauses) <= LONGEST_SECONDS + 0.02
    assert all(after >= before - 0.02 for before, after in itertools.pairwise(pauses))
    # News is late by no more than a quarter of the time that has passed.
    assert all(pause <= max(SHORTEST_SECONDS, 0.25 * at) + 0.02 for at, pause in zip(found, pauses, strict=False))
