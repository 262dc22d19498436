# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.aws.ended`: instances that end by themselves."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from nodepool.driver.aws.ended import EndedInstances
from nodepool.driver.aws.types import AwsRecord
from nodepool.metrics.catalog import INSTANCES_ENDED
from nodepool.metrics.process import REGISTRY
from tests.unit.driver.aws.support import NODE, PROVIDER, instance

SPOT = "Server.SpotInstanceTermination"


def record(instance_id: str = "i-1", state: str = "shutting-down", code: str = SPOT, **more: Any) -> AwsRecord:
    reason = {"Code": code, "Message": "Spot instance\n termination"}
    return AwsRecord.of(instance(instance_id, state, StateReason=reason, InstanceLifecycle="spot", **more))


def counted(reason: str) -> float:
    value = REGISTRY.snapshot().get(INSTANCES_ENDED.series(PROVIDER, reason), 0.0)
    assert isinstance(value, float | int)
    return value


def test_interruption(caplog: pytest.LogCaptureFixture) -> None:
    """AW-2: told once, in the cloud's words, and counted by code."""
    ended = EndedInstances(PROVIDER)
    before = counted(SPOT)
    ended.seen([record(state="running")])
    ended.seen([record()])
    ended.seen([record(state="terminated")])
    ended.seen([])
    assert counted(SPOT) - before == 1
    (told,) = caplog.messages
    assert told == f"Instance i-1 (spot) of node {NODE} ended: {SPOT}: Spot instance termination"


def test_what_somebody_wanted(caplog: pytest.LogCaptureFixture) -> None:
    """It is counted, and no reason to look at the log."""
    ended = EndedInstances(PROVIDER)
    code = "Client.UserInitiatedShutdown"
    before = counted(code)
    ended.seen([])
    with caplog.at_level(logging.INFO):
        ended.seen([record(code=code)])
    assert counted(code) - before == 1
    assert caplog.messages == []


def test_no_reason(caplog: pytest.LogCaptureFixture) -> None:
    ended = EndedInstances(PROVIDER)
    before = counted("none")
    ended.seen([])
    ended.seen([record(code="")])
    assert counted("none") - before == 1
    assert "AWS gives no reason" in caplog.text


@pytest.mark.parametrize("tags", [[], [{"Key": "nodepool_provider_name", "Value": "other"}]])
def test_of_others(tags: list[dict[str, str]]) -> None:
    ended = EndedInstances(PROVIDER)
    before = counted(SPOT)
    ended.seen([])
    ended.seen([record(Tags=tags)])
    assert counted(SPOT) == before


def test_before_the_start() -> None:
    """The first list shows what ended in the last hour."""
    ended = EndedInstances(PROVIDER)
    before = counted(SPOT)
    ended.seen([record()])
    ended.seen([record(state="terminated"), record("i-2")])
    assert counted(SPOT) - before == 1
