# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from nodepool.model.maintenance import MODES, Maintenance, Mode, znode_name
from nodepool.model.record import InvalidRecord

PAUSED = Maintenance("pool", "cloud-1/main", Mode.PAUSE, "the network is changed", "alice@desk", 1763809000, 1763816200)


FAILING = Maintenance("host", "h1", Mode.QUARANTINE, "3 failed checks", "launcher l1", 1.0, 61.0, automatic=True)


@pytest.mark.parametrize("record", [PAUSED, Maintenance("host", "zuul@[fe80::1]:22", Mode.QUARANTINE), FAILING])
def test_written_and_read(record: Maintenance) -> None:
    znode = znode_name(record.name)
    assert "/" not in znode
    assert Maintenance.of_record(record.kind, znode, record.to_dict()) == record


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("pool", {}),
        ("pool", {"mode": ["pause"]}),
        ("pool", {"mode": "quarantine"}),
        ("unknown", {"mode": "pause"}),
        ("pool", {"mode": "pause", "until": "tomorrow"}),
        ("pool", {"mode": "pause", "reason": 1}),
    ],
)
def test_refused(kind: str, data: dict[str, object]) -> None:
    with pytest.raises(InvalidRecord):
        Maintenance.of_record(kind, "x", data)


def test_end() -> None:
    assert not PAUSED.is_over(1763816199)
    assert PAUSED.is_over(1763816200)
    assert not Maintenance("label", "gpu", Mode.PAUSE).is_over(1e12)


def test_text() -> None:
    assert PAUSED.text == "pool cloud-1/main is paused by alice@desk: the network is changed"
    assert Maintenance("label", "gpu", Mode.PAUSE).text == "label gpu is paused"


def test_every_mode_is_of_some_kind() -> None:
    assert {mode for modes in MODES.values() for mode in modes} == set(Mode)
