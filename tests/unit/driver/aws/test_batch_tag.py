# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.aws.batch_tag`."""

from __future__ import annotations

import pytest

from nodepool.driver.aws.batch_tag import BATCH_KEY, MOST, batch_value, fits, lacks_own, with_node
from nodepool.driver.statemachine import metadata


@pytest.mark.parametrize(
    ("tags", "index", "node_id"),
    [
        ({BATCH_KEY: "7 8 9"}, 0, "7"),
        ({BATCH_KEY: "7 8 9"}, 2, "9"),
        ({BATCH_KEY: "7 8 9"}, 3, None),
        ({BATCH_KEY: ""}, 0, None),
        ({BATCH_KEY: "7 8", metadata.NODE_KEY: "1"}, 0, "1"),
        ({metadata.NODE_KEY: "1"}, 5, "1"),
        ({}, 0, None),
    ],
)
def test_node(tags: dict[str, str], index: int, node_id: str | None) -> None:
    """Tags of its own count; without them the launch index says whose an instance is."""
    assert with_node(tags, index).get(metadata.NODE_KEY) == node_id
    assert lacks_own(tags) == (BATCH_KEY in tags and metadata.NODE_KEY not in tags)


def test_room() -> None:
    """As many ids as a call takes fit in a tag."""
    ids = [f"{number:010d}" for number in range(MOST)]
    assert batch_value(ids).split() == ids
    assert fits(ids)
    assert not fits([*ids, *ids])
