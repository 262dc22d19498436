# SPDX-License-Identifier: Apache-2.0
"""nodepool.model.component: entries of the registry (reference/zookeeper 7)."""

from __future__ import annotations

from typing import Any

import pytest

from nodepool.model.component import LauncherComponent, PoolComponent
from nodepool.model.record import InvalidRecord


def test_pool_has_the_keys_that_others_read() -> None:
    pool = PoolComponent("host", "12.0")
    pool.id, pool.name, pool.provider_name, pool.supported_labels = "id", "main", "cloud", ["b", "a"]
    assert pool.to_dict() == {
        "hostname": "host",
        "kind": "pool",
        "state": "stopped",
        "version": "12.0",
        "model_api": 0,
        "id": "id",
        "name": "main",
        "provider_name": "cloud",
        "supported_labels": ["a", "b"],
        "priority": 100,
        "paused": False,
    }


def test_launcher() -> None:
    assert LauncherComponent("host", "12.0").to_dict()["kind"] == "launcher"


def test_round_trip() -> None:
    pool = PoolComponent("host", "12.0")
    pool.id, pool.priority, pool.paused, pool.state = "id", 7, True, "running"
    assert PoolComponent.from_dict(pool.to_dict(), "host0000000001").to_dict() == pool.to_dict()


def test_defaults_of_missing_keys() -> None:
    pool = PoolComponent.from_dict({"id": "x"})
    assert (pool.priority, pool.paused, pool.supported_labels, pool.state) == (100, False, [], "stopped")


@pytest.mark.parametrize(
    "data", [{}, {"id": 1}, {"id": "x", "supported_labels": "a"}, {"id": "x", "priority": "1"}, {"id": None}]
)
def test_no_pool(data: dict[str, Any]) -> None:
    with pytest.raises(InvalidRecord):
        PoolComponent.from_dict(data)
