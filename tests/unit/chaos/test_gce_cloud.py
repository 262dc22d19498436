# SPDX-License-Identifier: Apache-2.0
"""Faults of the chaos runs as settings of the simulated Google project."""

from __future__ import annotations

import pytest

from nodepool.testing.gce import GceSettings, GceSimulator
from nodepool.testing.openstack import Knobs
from tests.chaos.gce_cloud import GceCloud, translated


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
    settings = GceSettings()
    settings.update(translated(changes))
    assert [(rule["operation"], rule["kind"], rule["reason"]) for rule in settings.as_json()["errors"]] == [
        ("*", "503", ""),
        ("instances.*", "403", "rateLimitExceeded"),
        ("instances.insert", "drop", ""),
    ]
    assert [(rule.kind, rule.code) for rule in settings.boots][:2] == [
        ("failed", "INTERNAL_ERROR"),
        ("failed", "ZONE_RESOURCE_POOL_EXHAUSTED"),
    ]
    assert [rule.kind for rule in settings.deletes] == ["failed", "failed"]
    assert (settings.hidden_rate, settings.ghost_rate, settings.ghost_seconds) == (0.3, 0.3, (0.3, 3.0))
    assert (settings.leak_rate, settings.quotas) == (0.2, {"INSTANCES": 5})


def test_how_it_looks() -> None:
    with GceSimulator() as simulator:
        cloud = GceCloud(simulator.url)
        with simulator.cloud() as project:
            instance = project.add_instance("np1", {"nodepool_node_id": "1"})
            project.add_disk("left")
        assert cloud.state()["contents"] == {"servers": 1, "ports": 1, "floating_ips": 0, "volumes": 1}
        (server,) = cloud.servers()
        assert (server["id"], server["metadata"]) == (instance.name, {"nodepool_node_id": "1"})
        cloud.release_stuck()
        cloud.vanish(instance.name)
        assert cloud.servers() == []
        with pytest.raises(ValueError, match="there is no instance"):
            cloud.vanish(instance.name)
