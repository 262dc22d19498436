# SPDX-License-Identifier: Apache-2.0
"""Who made what is too much."""

from __future__ import annotations

import json

import pytest

from tests.chaos.transaction_log import Write
from tests.migration.judge import Excess, faults_of_ours, kind_of, makers
from tests.migration.kinds import Kind

CHROOT = "/site"
OURS, RELEASED, CLIENT = 1, 2, 3


def pool(session: int, version: str) -> Write:
    path = f"{CHROOT}/nodepool/components/pool/host{session}"
    return Write(1, session, "create", path, json.dumps({"id": f"pool{session}", "version": version}).encode())


def node(session: int, node_id: str, kind: str = "create") -> Write:
    return Write(2, session, kind, f"{CHROOT}/nodepool/nodes/{node_id}", b"{}")


@pytest.mark.parametrize(("version", "kind"), [("11.0.0", Kind.RELEASED), ("12.0.0", Kind.OURS), (None, Kind.OURS)])
def test_whose_a_pool_is(version: str | None, kind: Kind) -> None:
    assert kind_of({"version": version}) is kind


def test_who_stored_a_node() -> None:
    """By the session, also when the pool is registered later; what clients store, and other writes, do not count."""
    writes = [
        node(OURS, "0000000001"),
        pool(OURS, "12.0.0"),
        pool(RELEASED, "11.0.0"),
        node(RELEASED, "0000000002"),
        node(RELEASED, "0000000001", "set"),
        node(CLIENT, "0000000003"),
        Write(3, OURS, "create", f"{CHROOT}/nodepool/nodes/0000000001/lock/abc__lock__0000000000"),
    ]
    assert makers(writes, CHROOT) == {"0000000001": Kind.OURS, "0000000002": Kind.RELEASED}


def test_the_later_one_is_at_fault() -> None:
    made_by = {"1": Kind.RELEASED, "2": Kind.OURS, "3": Kind.RELEASED}
    assert faults_of_ours([Excess("a limit", 2, ("3", "1", "2"), 1.0)], made_by) == []
    (fault,) = faults_of_ours([Excess("a limit", 1, ("3", "1", "2"), 1.5)], made_by)
    assert fault == "1.5 s: node 2 of ours is above a limit: ['1', '2', '3']"


def test_each_fault_is_told_once() -> None:
    excesses = [Excess("a limit", 0, ("1",), when) for when in (1.0, 2.0)]
    assert len(faults_of_ours(excesses, {"1": Kind.OURS})) == 1
    assert faults_of_ours(excesses, {}) == []
