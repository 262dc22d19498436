# SPDX-License-Identifier: Apache-2.0
"""Faults of the chaos runs as settings of the simulated AWS region."""

from __future__ import annotations

import pytest

from nodepool.testing.aws import AwsSettings, AwsSimulator
from nodepool.testing.openstack import Knobs
from tests.chaos.aws_cloud import AwsCloud, translated


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
        "volume_leak_rate": 0.1,
        "quota": {"instances": 5},
    }
    Knobs().update(changes)
    settings = AwsSettings()
    settings.update(translated(changes))
    assert [(rule.operation, rule.kind) for rule in settings.errors] == [
        ("*", "503"),
        ("ec2.*", "503"),
        ("ec2.RunInstances", "drop"),
    ]
    assert [rule.kind for rule in settings.boots] == ["failed", "failed", "stuck"]
    assert settings.boots[1].code == "Server.InsufficientInstanceCapacity"
    assert [rule.kind for rule in settings.ends] == ["swallowed", "swallowed"]
    assert (settings.hidden_rate, settings.tag_lag_seconds, settings.instance_limit) == (0.3, (0.3, 3.0), 5)


def test_how_it_looks() -> None:
    with AwsSimulator() as simulator:
        cloud = AwsCloud(simulator.url)
        with simulator.cloud() as region:
            instance = region.add_instance({"nodepool_node_id": "1"})
            region.add_volume()
        assert cloud.state()["contents"] == {"servers": 1, "ports": 1, "floating_ips": 0, "volumes": 1}
        (server,) = cloud.servers()
        assert (server["id"], server["metadata"]) == (instance.id, {"nodepool_node_id": "1"})
        cloud.release_stuck()
        cloud.vanish(instance.id)
        assert cloud.servers() == []
        with pytest.raises(ValueError, match="does not exist"):
            cloud.vanish(instance.id)
