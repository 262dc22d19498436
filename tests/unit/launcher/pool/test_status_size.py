# SPDX-License-Identifier: Apache-2.0
"""How much of a status is stored (W-7)."""

from __future__ import annotations

import json

from nodepool.launcher.pool.status import MAX_BYTES, MAX_ENTRIES, bounded
from nodepool.model.status import HostStatus, LabelStatus, PoolStatus, RequestStatus


def length(status: PoolStatus) -> int:
    return len(json.dumps(status.to_dict()))


def request(number: int, text: str = "") -> RequestStatus:
    return RequestStatus(f"200-{number:010}", "done", "label.unknown", text)


def test_small_one() -> None:
    """W-7: nothing is left out."""
    status = PoolStatus(requests=[request(1)], hosts=[HostStatus("a")])
    assert bounded(status) is status


def test_many_entries() -> None:
    """W-7: of declined requests the last ones stay, of others the first ones."""
    entries = [request(number) for number in range(MAX_ENTRIES + 5)]
    found = bounded(PoolStatus(requests=entries, declined=entries, omitted=2))
    assert found.requests == entries[:MAX_ENTRIES]
    assert found.declined == entries[5:]
    assert found.omitted == 12


def test_long_entries() -> None:
    """W-7: the longest list is cut until it fits, and a short one stays."""
    entries = [request(number, "x" * 2000) for number in range(150)]
    labels = {"gpu": LabelStatus("label.broken", "no flavor", 1.0)}
    found = bounded(PoolStatus(declined=entries, requests=entries[:3], labels=labels))
    assert length(found) <= MAX_BYTES
    assert found.requests == entries[:3]
    assert found.labels == labels
    assert found.declined
    assert found.declined[-1] == entries[-1]
    assert found.omitted == len(entries) - len(found.declined)


def test_labels() -> None:
    """W-7: mappings are cut, too."""
    labels = {f"label-{number}": LabelStatus("label.broken", "x" * 300, 1.0) for number in range(500)}
    found = bounded(PoolStatus(labels=labels, ready={"a": 1}))
    assert length(found) <= MAX_BYTES
    assert found.ready == {"a": 1}
    assert found.omitted == 500 - len(found.labels)


def test_one_entry_that_is_too_long() -> None:
    """W-7: it cannot be cut, and is left out."""
    found = bounded(PoolStatus(requests=[request(1, "x" * MAX_BYTES)] * 200))
    assert found.requests == []
    assert found.omitted == 200
