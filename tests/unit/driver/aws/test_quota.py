# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.aws.quota`."""

from __future__ import annotations

import logging
import math
from typing import Any

import pytest

from nodepool.driver.aws.quota import AGAIN_SECONDS, LIMITS_SECONDS, AccountLimits
from nodepool.driver.aws.types import AwsRecord
from nodepool.model.quota import QuotaInformation
from tests.unit.driver.aws.support import EBS_QUOTAS, EC2_QUOTAS, Rig, error, instance, section, shown

ON_DEMAND, SPOT, GP3 = "L-1216C47A", "L-34B43A08", "L-7A658B76"


def rig_of(label: dict[str, Any] | None = None) -> Rig:
    rig = Rig(section(label))
    rig.adapter.limits = AccountLimits(rig.config, rig.adapter.client, rig.adapter.facts, rig.clock)
    return rig


def amounts(quota: QuotaInformation) -> dict[str, float]:
    return {name: value for name, value in quota.quota["compute"].items() if value != math.inf}


def test_limits_that_labels_need() -> None:
    """AW-14: only these; everything else is unlimited."""
    rig = rig_of()
    assert amounts(rig.adapter.getQuotaLimits()) == {ON_DEMAND: 64}
    assert amounts(rig_of({"use-spot": True}).adapter.getQuotaLimits()) == {SPOT: 32}
    with_volume = rig_of({"volume-type": "gp3", "volume-size": 40})
    assert amounts(with_volume.adapter.getQuotaLimits()) == {ON_DEMAND: 64, GP3: 50_000}
    assert [arguments for _, arguments in rig.region.calls] == [
        {"ServiceCode": "ec2", "MaxResults": 100},
        {"ServiceCode": "ebs", "MaxResults": 100},
    ]


def test_limits_are_kept_for_an_hour() -> None:
    """AW-14."""
    rig = rig_of()
    for _ in range(3):
        rig.adapter.getQuotaLimits()
        rig.clock.now += LIMITS_SECONDS / 4
    assert rig.region.count("list_service_quotas") == 2
    rig.region.answers["list_service_quotas"] = [{"Quotas": [{**EC2_QUOTAS[0], "Value": 96.0}]}, {"Quotas": []}]
    rig.clock.now += LIMITS_SECONDS
    assert amounts(rig.adapter.getQuotaLimits()) == {ON_DEMAND: 96}


def test_nothing_waits_for_service_quotas(caplog: pytest.LogCaptureFixture) -> None:
    """AW-14: while it does not answer, what was known before counts; it is asked again after five minutes."""
    rig = rig_of()
    good: Any = [{"Quotas": EC2_QUOTAS}, {"Quotas": EBS_QUOTAS}]
    rig.region.answers["list_service_quotas"] = error("AccessDeniedException", status=403)
    with caplog.at_level(logging.WARNING):
        assert amounts(rig.adapter.getQuotaLimits()) == {}
        assert amounts(rig.adapter.getQuotaForLabel(rig.label))[ON_DEMAND] == 2
    assert len(caplog.records) == 1
    assert "allow servicequotas:ListServiceQuotas" in caplog.text
    assert rig.region.count("list_service_quotas") == 1
    rig.region.answers["list_service_quotas"] = good
    rig.clock.now += AGAIN_SECONDS + 1
    assert amounts(rig.adapter.getQuotaLimits()) == {ON_DEMAND: 64}
    rig.region.answers["list_service_quotas"] = error("InternalError", status=500)
    rig.clock.now += LIMITS_SECONDS + 1
    assert amounts(rig.adapter.getQuotaLimits()) == {ON_DEMAND: 64}


def test_unknown_limit(caplog: pytest.LogCaptureFixture) -> None:
    """AW-14: a code without a limit is told, once in a while."""
    rig = rig_of({"instance-type": "x1e.xlarge"})
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert amounts(rig.adapter.getQuotaLimits()) == {}
    assert [record.getMessage() for record in caplog.records] == [
        "Provider north: Service Quotas has no limits for L-7295265B"
    ]


def test_need_of_a_label() -> None:
    """AW-11: cores, memory, one instance, and vCPUs of its quota."""
    rig = rig_of()
    for _ in range(2):
        need = amounts(rig.adapter.getQuotaForLabel(rig.label))
        assert need == {"instances": 1, "cores": 1, "ram": 4096, ON_DEMAND: 2}
    assert rig.region.count("describe_instance_types") == 1
    spot = rig_of({"use-spot": True})
    assert amounts(spot.adapter.getQuotaForLabel(spot.label))[SPOT] == 2


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ({"volume-size": 40}, {}),
        ({"volume-type": "gp3", "volume-size": 40}, {GP3: 40}),
        ({"volume-type": "gp3"}, {GP3: 8}),
        ({"volume-type": "io2", "volume-size": 40, "iops": 3000}, {"L-09BD8365": 40, "L-8D977E7E": 3000}),
        ({"volume-type": "odd", "volume-size": 40}, {}),
    ],
)
def test_need_of_volumes(label: dict[str, Any], expected: dict[str, float]) -> None:
    """AW-11: only with ``volume-type``; the size is the image's if the label says none."""
    rig = rig_of(label)
    need = amounts(rig.adapter.getQuotaForLabel(rig.label))
    assert {name: value for name, value in need.items() if name.startswith("L-") and name != ON_DEMAND} == expected


def test_family_without_a_quota(caplog: pytest.LogCaptureFixture) -> None:
    """AW-12: told, and its vCPUs are not counted."""
    rig = rig_of({"instance-type": "mac2.metal"})
    rig.region.answers["describe_instance_types"] = {"InstanceTypes": [{"InstanceType": "mac2.metal"}]}
    with caplog.at_level(logging.WARNING):
        assert amounts(rig.adapter.getQuotaForLabel(rig.label)) == {"instances": 1, "cores": 0, "ram": 0}
    assert "no quota is known for instances of mac2.metal" in caplog.text


def test_use_of_others() -> None:
    """AW-14: every instance of the region that has not ended, with its volumes if labels count volumes."""
    rig = rig_of({"volume-type": "gp3"})
    rig.region.answers["describe_instances"] = shown(
        instance("i-1", Tags=[], BlockDeviceMappings=[{"Ebs": {"VolumeId": "vol-1"}}, {"Ebs": {"VolumeId": "vol-2"}}]),
        instance("i-2", Tags=[], InstanceLifecycle="spot"),
    )
    rig.region.answers["describe_volumes"] = {
        "Volumes": [{"VolumeId": f"vol-{n}", "Size": 10 * n, "VolumeType": "gp3"} for n in (1, 2, 3)]
    }
    found = [amounts(made.getQuotaInformation()) for made in rig.adapter.listInstances()]
    assert found == [
        {"instances": 1, "cores": 1, "ram": 4096, ON_DEMAND: 2, GP3: 30},
        {"instances": 1, "cores": 1, "ram": 4096, SPOT: 2},
    ]


def test_volumes_are_listed_only_if_they_count() -> None:
    """AW-14."""
    rig = rig_of()
    rig.adapter.listInstances()
    assert rig.region.count("describe_volumes") == 0


def test_use_of_a_new_node() -> None:
    """AW-11: what its record says is what its label needs."""
    rig = rig_of({"volume-type": "gp3", "volume-size": 40})
    need = rig.adapter.getQuotaForLabel(rig.label)
    used = rig.adapter.limits.use_of(AwsRecord.of(instance()), label=rig.label)
    assert amounts(used) == amounts(need)


def test_type_that_is_not_known() -> None:
    """AW-11: one instance."""
    assert amounts(rig_of().adapter.limits.use_of(AwsRecord.of(instance()))) == {"cores": 0, "instances": 1, "ram": 0}
