# SPDX-License-Identifier: Apache-2.0
"""The tag of instances that one call made for several nodes: it says for which. Pure.

All instances of a call have the same tags. Each has a launch index, from 0: that of its node in the tag. So what was
made is never without its node, also if the launcher ends before each instance has tags of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from nodepool.driver.statemachine import metadata

BATCH_KEY: Final = "nodepool_batch"
#: Longest value of a tag.
_MAX_VALUE: Final = 256
#: Most instances of a call.
MOST: Final = 20
#: Of each instance alone; what else its tags say it has in common with the others.
OWN_KEYS: Final = (metadata.NODE_KEY, "Name")


def batch_value(node_ids: Iterable[str]) -> str:
    """The tag's value, for node ids in the order of launch indexes."""
    return " ".join(node_ids)


def fits(node_ids: Iterable[str]) -> bool:
    """Is there room in the tag?"""
    return len(batch_value(node_ids)) <= _MAX_VALUE


def with_node(tags: dict[str, str], index: int) -> dict[str, str]:
    """Tags that say of which node something is; they do by themselves, or as those of a batch.

    :param index: launch index of the instance.
    """
    if not lacks_own(tags):
        return tags
    node_ids = tags[BATCH_KEY].split()
    return {**tags, metadata.NODE_KEY: node_ids[index]} if index < len(node_ids) else tags


def lacks_own(tags: Mapping[str, str]) -> bool:
    """Are they those that a batch has in common?"""
    return BATCH_KEY in tags and metadata.NODE_KEY not in tags
