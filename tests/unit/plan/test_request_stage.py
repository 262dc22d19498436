# SPDX-License-Identifier: Apache-2.0
"""Stages of a request in a pool, and the moves between them."""

from __future__ import annotations

from collections import deque
from pathlib import Path

import pytest

from nodepool.plan.request_stage import ENDED, LOCKED, MOVES, STORY_MOVES, UNFINISHED, ImpossibleMove, Progress, Stage

ARCHITECTURE = Path(__file__).parents[3] / "doc" / "source" / "explanation" / "architecture.rst"


def reachable(start: Stage) -> set[Stage]:
    found, frontier = {start}, deque([start])
    while frontier:
        here = frontier.popleft()
        for origin, target in MOVES:
            if origin is here and target not in found:
                found.add(target)
                frontier.append(target)
    return found


def test_every_stage_is_reached_and_left() -> None:
    assert reachable(Stage.WAITING) == set(Stage)
    for stage in Stage:
        assert (Stage.DONE in reachable(stage)) is True
    assert not [target for origin, target in MOVES if origin is Stage.DONE]
    assert all(reason and origin is not target for (origin, target), reason in MOVES.items())


def test_lock_is_held_from_the_answer_to_the_end() -> None:
    """A lock is gained only from `locking`, and lost only when the handler has ended."""
    assert {origin for origin, target in MOVES if target in LOCKED and origin not in LOCKED} == {Stage.LOCKING}
    assert {target for origin, target in MOVES if origin in LOCKED and target not in LOCKED} == ENDED
    assert UNFINISHED.isdisjoint(ENDED)


def test_move() -> None:
    progress = Progress("100-1", 10.0)
    assert (progress.stage, progress.since) == (Stage.WAITING, 10.0)
    progress.move(Stage.LOCKING, 11.0)
    assert (progress.stage, progress.since) == (Stage.LOCKING, 11.0)


def test_moves_are_told() -> None:
    """After the move, and only if there was one."""
    told: list[Stage] = []
    progress = Progress("100-1", 10.0)
    progress.on_move = lambda moved: told.append(moved.stage)
    with pytest.raises(ImpossibleMove):
        progress.move(Stage.PAUSED, 11.0)
    progress.move(Stage.LOCKING, 11.0)
    assert told == [Stage.LOCKING]


@pytest.mark.parametrize("origin", Stage)
@pytest.mark.parametrize("target", Stage)
def test_only_moves_of_the_table(origin: Stage, target: Stage) -> None:
    progress = Progress("100-1", 0.0)
    progress.stage = origin
    if (origin, target) in MOVES:
        progress.move(target, 1.0)
        assert progress.stage is target
    else:
        with pytest.raises(ImpossibleMove, match=f"100-1 cannot go from {origin.value} to {target.value}"):
            progress.move(target, 1.0)
        assert progress.stage is origin


def test_story_of_an_impossible_move() -> None:
    progress = Progress("100-1", 0.0)
    progress.move(Stage.LOCKING, 1.0)
    progress.move(Stage.GATHERING, 2.5)
    with pytest.raises(ImpossibleMove) as raised:
        progress.move(Stage.CHECKING, 4.0)
    assert str(raised.value).endswith(
        "waiting, then locking 3.0 s ago (there is room to launch its nodes), gathering 1.5 s ago (locked and pending)"
    )


def test_story_is_bounded() -> None:
    progress = Progress("100-1", 0.0)
    assert progress.story(2.0) == "waiting since 2.0 s, without a move before"
    for turn in range(STORY_MOVES):
        progress.move(Stage.DEFERRED, turn)
        progress.move(Stage.WAITING, turn)
    assert len(progress.moves) == STORY_MOVES


def test_picture_in_the_documentation() -> None:
    """`architecture.rst` shows each move, and no other."""
    text = ARCHITECTURE.read_text(encoding="utf-8")
    begin = text.index(".. moves of a request")
    lines = [line.strip() for line in text[begin : text.index("\n\n\n", begin)].splitlines()]
    shown = [line for line in lines if "->" in line]
    assert shown == [f"{origin.value} -> {target.value}: {reason}" for (origin, target), reason in MOVES.items()]
