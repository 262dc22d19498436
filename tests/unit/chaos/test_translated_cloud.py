# SPDX-License-Identifier: Apache-2.0
"""Faults of the chaos runs as settings of the simulated clouds that are not OpenStack, and how these clouds look."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from nodepool.testing.aws import AwsSettings, AwsSimulator
from nodepool.testing.azure import AzureSettings, AzureSimulator
from nodepool.testing.gce import GceSettings, GceSimulator
from nodepool.testing.ibmvpc import IbmVpcSettings, IbmVpcSimulator
from nodepool.testing.openstack import Knobs
from nodepool.testing.simulator.settings import SimulatorSettings
from nodepool.testing.simulator.simulator import Simulator
from tests.chaos import aws_cloud, azure_cloud, gce_cloud, ibmvpc_cloud
from tests.chaos.translated_cloud import TranslatedCloud, Translation

#: All that the injector ever sets.
CHANGES = {
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


GHOSTS = {"ghost_rate": 0.3, "ghost_seconds": (0.3, 3.0)}


@pytest.mark.parametrize(
    ("settings_class", "translation", "errors", "boots", "deletes", "rest"),
    [
        pytest.param(
            AwsSettings,
            aws_cloud.TRANSLATION,
            [("*", "503"), ("ec2.*", "503"), ("ec2.RunInstances", "drop")],
            ["Server.InternalError", "Server.InsufficientInstanceCapacity", "Server.InternalError"],
            ("ends", "swallowed"),
            {"tag_lag_rate": 0.3, "tag_lag_seconds": (0.3, 3.0), "instance_limit": 5},
            id="aws",
        ),
        pytest.param(
            AzureSettings,
            azure_cloud.TRANSLATION,
            [("*", "503"), ("virtualMachines.*", "429"), ("virtualMachines.put", "drop")],
            ["OSProvisioningTimedOut", "AllocationFailed", "OSProvisioningTimedOut"],
            ("deletes", "swallowed"),
            {**GHOSTS, "leak_rate": 0.2, "quotas": {"virtualMachines": 5}},
            id="azure",
        ),
        pytest.param(
            GceSettings,
            gce_cloud.TRANSLATION,
            [("*", "503"), ("instances.*", "403"), ("instances.insert", "drop")],
            ["INTERNAL_ERROR", "ZONE_RESOURCE_POOL_EXHAUSTED", "INTERNAL_ERROR"],
            ("deletes", "failed"),
            {**GHOSTS, "leak_rate": 0.2, "quotas": {"INSTANCES": 5}},
            id="gce",
        ),
        pytest.param(
            IbmVpcSettings,
            ibmvpc_cloud.TRANSLATION,
            [("*", "503"), ("vpc.*", "429"), ("vpc.create_*", "drop")],
            ["", "cannot_start_capacity", ""],
            ("deletes", "swallowed"),
            {**GHOSTS, "leak_rate": 0.2, "quotas": {"instances": 5}},
            id="ibmvpc",
        ),
    ],
)
def test_what_the_faults_set(
    settings_class: Callable[[], SimulatorSettings],
    translation: Translation,
    errors: list[tuple[str, str]],
    boots: list[str],
    deletes: tuple[str, str],
    rest: dict[str, Any],
) -> None:
    """All that the injector ever sets is taken by both clouds."""
    Knobs().update(CHANGES)
    settings = settings_class()
    settings.update(translation.settings(CHANGES))
    found = settings.as_json()
    assert [(rule["operation"], rule["kind"]) for rule in found["errors"]] == errors
    assert [rule["kind"] for rule in found["boots"]] == ["failed", "failed", "stuck"]
    assert [rule["code"] for rule in found["boots"]] == boots
    name, kind = deletes
    assert [rule["kind"] for rule in found[name]] == [kind, kind]
    expected = {"hidden_rate": 0.3, "hidden_seconds": (0.3, 3.0), **rest}
    assert {name: found[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("translation", "name", "word"),
    [
        pytest.param(aws_cloud.TRANSLATION, "code", "RequestLimitExceeded", id="aws"),
        pytest.param(gce_cloud.TRANSLATION, "reason", "rateLimitExceeded", id="gce"),
    ],
)
def test_cloud_without_429_limits_calls_in_its_own_words(translation: Translation, name: str, word: str) -> None:
    errors = translation.settings(CHANGES)["errors"]
    assert [rule.get(name) for rule in errors] == [None, word, None]
    assert not any("retry_after" in rule for rule in errors)


NODE = {"nodepool_node_id": "0000000001"}


def _fill_aws(simulator: AwsSimulator) -> str:
    with simulator.cloud() as region:
        region.add_volume()
        return str(region.add_instance(NODE).id)


def _fill_azure(simulator: AzureSimulator) -> str:
    with simulator.cloud() as subscription:
        subscription.add_disk("left")
        return str(subscription.add_vm("np1", NODE).name)


def _fill_gce(simulator: GceSimulator) -> str:
    with simulator.cloud() as project:
        project.add_disk("left")
        return str(project.add_instance("np1", NODE).name)


def _fill_ibmvpc(simulator: IbmVpcSimulator) -> str:
    with simulator.cloud() as region:
        region.add_volume("left")
        for number in range(ibmvpc_cloud.FREE_ADDRESSES + 1):
            region.add_address(f"ip{number}")
        return str(region.add_instance("np0000000001", "np_somewhere_main").id)


@pytest.mark.parametrize(
    ("simulator_class", "cloud_class", "fill", "addresses", "metadata", "refusal"),
    [
        pytest.param(AwsSimulator, aws_cloud.AwsCloud, _fill_aws, 0, NODE, "does not exist", id="aws"),
        pytest.param(AzureSimulator, azure_cloud.AzureCloud, _fill_azure, -1, NODE, "was not found", id="azure"),
        pytest.param(GceSimulator, gce_cloud.GceCloud, _fill_gce, 0, NODE, "there is no instance", id="gce"),
        pytest.param(
            IbmVpcSimulator,
            ibmvpc_cloud.IbmVpcCloud,
            _fill_ibmvpc,
            1,
            {**NODE, "nodepool_provider_name": "somewhere"},
            "not found",
            id="ibmvpc",
        ),
    ],
)
def test_how_it_looks(
    simulator_class: Callable[[], Simulator[Any]],
    cloud_class: Callable[[str], TranslatedCloud],
    fill: Callable[[Any], str],
    addresses: int,
    metadata: dict[str, str],
    refusal: str,
) -> None:
    """One server, and a volume that somebody left."""
    with simulator_class() as simulator:
        cloud = cloud_class(simulator.url)
        server_id = fill(simulator)
        state = cloud.state()
        assert state["contents"] == {"servers": 1, "ports": 1, "floating_ips": addresses, "volumes": 1}
        assert state["peak_servers"] == 1
        (server,) = cloud.servers()
        assert (server["id"], server["metadata"]) == (server_id, metadata)
        cloud.release_stuck()
        cloud.vanish(server_id)
        assert cloud.servers() == []
        with pytest.raises(ValueError, match=refusal):
            cloud.vanish(server_id)
