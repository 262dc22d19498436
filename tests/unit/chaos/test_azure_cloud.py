# SPDX-License-Identifier: Apache-2.0
"""Faults of the chaos runs as settings of the simulated Azure subscription."""

from __future__ import annotations

import pytest

from nodepool.testing.azure import AzureSettings, AzureSimulator
from nodepool.testing.openstack import Knobs
from tests.chaos.azure_cloud import AzureCloud, translated


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
    settings = AzureSettings()
    settings.update(translated(changes))
    assert [(rule.operation, rule.kind) for rule in settings.errors] == [
        ("*", "503"),
        ("virtualMachines.*", "429"),
        ("virtualMachines.put", "drop"),
    ]
    assert [(rule.kind, rule.code) for rule in settings.boots][1:] == [
        ("failed", "AllocationFailed"),
        ("stuck", "OSProvisioningTimedOut"),
    ]
    assert [rule.kind for rule in settings.deletes] == ["swallowed", "swallowed"]
    assert (settings.hidden_rate, settings.ghost_rate, settings.ghost_seconds) == (0.3, 0.3, (0.3, 3.0))
    assert (settings.leak_rate, settings.quotas) == (0.2, {"virtualMachines": 5})


def test_how_it_looks() -> None:
    with AzureSimulator() as simulator:
        cloud = AzureCloud(simulator.url)
        with simulator.cloud() as subscription:
            vm = subscription.add_vm("np1", {"nodepool_node_id": "1"})
            subscription.add_disk("left")
        assert cloud.state()["contents"] == {"servers": 1, "ports": 1, "floating_ips": -1, "volumes": 1}
        (server,) = cloud.servers()
        assert (server["id"], server["metadata"]) == (vm.name, {"nodepool_node_id": "1"})
        cloud.release_stuck()
        cloud.vanish(vm.name)
        assert cloud.servers() == []
        with pytest.raises(ValueError, match="was not found"):
            cloud.vanish(vm.name)
