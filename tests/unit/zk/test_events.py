# SPDX-License-Identifier: Apache-2.0
"""Kinds of events have ZooKeeper's numbers."""

from __future__ import annotations

from kazoo.protocol.states import EVENT_TYPE_MAP, EventType

from nodepool.zk.reply import CHANGED, CREATED, DELETED


def test_numbers() -> None:
    found = [EVENT_TYPE_MAP[kind] for kind in (CREATED, CHANGED, DELETED)]
    assert found == [EventType.CREATED, EventType.CHANGED, EventType.DELETED]
