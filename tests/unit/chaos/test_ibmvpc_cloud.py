# SPDX-License-Identifier: Apache-2.0
"""Faults of the chaos runs as settings of the simulated IBM VPC region."""

from __future__ import annotations

import pytest

from nodepool.testing.ibmvpc import IbmVpcSettings, IbmVpcSimulator
from nodepool.testing.openstack import Knobs
from tests.chaos.ibmvpc_cloud import KEPT_ADDRESSES, IbmVpcCloud, translated


def test_what_the_faults_set() -> None:
    """All that the injector ever sets is taken by both clouds."""
    changes = {
        "errors": [
            {"operation": "*", "kind": "503"},
            {"operation": "compute.*", "kind": "429", "rate": 0.5, "retry_after": 1},
            {"operation": "compute.create_server", "after": True, "rate": 0.5, "kind": "drop"},
        ],
        "boots": [{"kind": kind, "rate": 0.5} for kind in ("error", "no-valid-host", "stuck")],
        "deletes": [{"kind": "swallowed", "rate": 0.5}, {"kind": "error", "rate": 0.5}],
        "hidden_rate": 0.3,
        "hidden_seconds": [0.3, 3.0],
        "port_leak_rate": 0.1,
        "volume_leak_rate": 0.2,
        "quota": {"instances": 5},
    }
    Knobs().update(changes)
    settings = IbmVpcSettings()
    settings.update(translated(changes))
    assert [(rule.operation, rule.kind) for rule in settings.errors] == [
        ("*", "503"),
        ("vpc.*", "429"),
        ("vpc.create_*", "drop"),
    ]
    assert [(rule.kind, rule.code) for rule in settings.boots] == [
        ("failed", ""),
        ("failed", "cannot_start_capacity"),
        ("stuck", ""),
    ]
    assert [rule.kind for rule in settings.deletes] == ["swallowed", "swallowed"]
    assert (settings.hidden_rate, settings.ghost_rate, settings.ghost_seconds) == (0.3, 0.3, (0.3, 3.0))
    assert (settings.leak_rate, settings.quotas) == (0.2, {"instances": 5})


def test_how_it_looks() -> None:
    with IbmVpcSimulator() as simulator:
        cloud = IbmVpcCloud(simulator.url)
        with simulator.cloud() as region:
            instance = region.add_instance("np0000000001", "np_somewhere_main")
            region.add_volume("left")
            for number in range(KEPT_ADDRESSES + 1):
                region.add_address(f"ip{number}")
        assert cloud.state()["contents"] == {"servers": 1, "ports": 1, "floating_ips": 1, "volumes": 1}
        (server,) = cloud.servers()
        metadata = {"nodepool_node_id": "0000000001", "nodepool_provider_name": "somewhere"}
        assert (server["id"], server["metadata"]) == (instance.id, metadata)
        cloud.release_stuck()
        cloud.vanish(instance.id)
        assert cloud.servers() == []
        with pytest.raises(ValueError, match="not found"):
            cloud.vanish(instance.id)
