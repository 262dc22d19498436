# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.plan.static`: what a request for static hosts is told (S-15)."""

from __future__ import annotations

import pytest

from nodepool.model.reasons import ReasonCode
from nodepool.plan.static import LabelSlots, SlotGroup, too_few_slots, waits_for


@pytest.mark.parametrize(
    ("labels", "offers", "text", "numbers"),
    [
        (["a"] * 4, [["a"]] * 3 + [["b"]] * 9, "4 nodes of label a are needed, this pool has 3 slots", (4, 3)),
        (["a"] * 2, [["a"]], "2 nodes of label a are needed, this pool has 1 slot", (2, 1)),
        (["b", "a"], [["a"]], "1 node of label b is needed, this pool has 0 slots", (1, 0)),
        (
            ["a", "b"],
            [["a", "b"], ["c"]],
            "2 nodes of labels a, b are needed, this pool has 1 slot with any of them",
            (2, 1),
        ),
        (
            ["a", "b", "c"],
            [["a", "b"], ["b", "c", "a"]],
            "3 nodes of labels a, b, c are needed, this pool has 2 slots with any of them",
            (3, 2),
        ),
        (
            ["a", "b", "c", "d"],
            [["a", "b", "c"], ["a", "b", "c"], ["d"]],
            "4 nodes of labels a, b, c, d are needed, this pool has 3 slots with any of them",
            (4, 3),
        ),
    ],
)
def test_more_nodes_than_slots(labels: list[str], offers: list[list[str]], text: str, numbers: tuple[int, int]) -> None:
    """S-15: the label of which there are too few, and both numbers."""
    reason = too_few_slots(labels, offers)
    assert reason is not None
    assert (reason.code, reason.text) == (ReasonCode.ROOM_STATIC, text)
    assert reason.numbers == dict(zip(("needed", "slots"), numbers, strict=True))


def test_enough_slots() -> None:
    """S-15: as many as asked, whichever of its labels a host serves."""
    assert too_few_slots(["a", "b", "a"], [["a", "b"], ["a"], ["a"]]) is None
    assert too_few_slots([], []) is None


DOWN = SlotGroup().plus("zuul@h3:22", 1)


@pytest.mark.parametrize(
    ("slots", "labels", "free", "text"),
    [
        (LabelSlots(3), ["a"], 0, "no slot with label a is free: of 3, 3 are in use"),
        (
            LabelSlots(4, down=DOWN, quarantined=SlotGroup(1, ("zuul@h4:5",))),
            ["a"],
            0,
            "no slot with label a is free: of 4, 2 are in use, 1 is down (zuul@h3:22) and 1 is quarantined (zuul@h4:5)",
        ),
        (
            LabelSlots(8, down=SlotGroup(8, tuple(f"h{number}" for number in range(5)))),
            ["a"],
            0,
            "no slot with label a is free: of 8, 8 are down (h0, h1, h2 and 2 more)",
        ),
        (
            LabelSlots(2, unchecked=SlotGroup(1, ("h1",))),
            ["a", "a"],
            1,
            "2 slots with label a are needed: of 2, 1 is free and 1 is not checked yet (h1)",
        ),
        (LabelSlots(), ["a"], 0, "no slot with label a is free: this pool has none"),
    ],
)
def test_what_a_request_waits_for(slots: LabelSlots, labels: list[str], free: int, text: str) -> None:
    """S-15: slots in use, and hosts that cannot be used now."""
    reason = waits_for(labels, {"a": slots}, {"a": free})
    assert (reason.code, reason.text) == (ReasonCode.WAIT_READY_NODE, text)
    assert (reason.numbers["needed"], reason.numbers["slots"]) == (len(labels), slots.total)


def test_several_labels() -> None:
    """S-15: only the labels that are short; or all of them, when one host would have to serve two."""
    slots = {"a": LabelSlots(1), "b": LabelSlots(2, down=DOWN), "c": LabelSlots(1)}
    assert waits_for(["a", "b", "c"], slots, {"c": 1}).text == (
        "no slot with label a is free: of 1, 1 is in use; "
        "no slot with label b is free: of 2, 1 is in use and 1 is down (zuul@h3:22)"
    )
    together = waits_for(["a", "b", "b"], slots, {"a": 1, "b": 2})
    assert together.text == "the free slots are too few for 1 a, 2 b together"
