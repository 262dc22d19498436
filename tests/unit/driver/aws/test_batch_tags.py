# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.aws.launches`."""

from __future__ import annotations

from typing import Any

import pytest

from nodepool.driver.aws.launches import AGAIN_SECONDS, OTHERS_SECONDS, OWN_SECONDS, BatchTags
from nodepool.driver.aws.types import BATCH_KEY, AwsRecord
from nodepool.driver.statemachine.instance import NODE_KEY, PROVIDER_KEY
from tests.support.manual_executor import ManualExecutor
from tests.unit.driver.aws.support import PROVIDER, Rig, error, instance

COMMON = [
    {"Key": PROVIDER_KEY, "Value": PROVIDER},
    {"Key": BATCH_KEY, "Value": "0000000007 0000000008"},
]
OWN = [{"Key": NODE_KEY, "Value": "0000000008"}, {"Key": "Name", "Value": "np0000000008"}]


def record(state: str = "running", tags: list[dict[str, str]] = COMMON, record_id: str = "i-8") -> AwsRecord:
    volume = {"DeviceName": "/dev/xvda", "Ebs": {"VolumeId": "vol-8"}}
    return AwsRecord.of(instance(record_id, state, Tags=tags, AmiLaunchIndex=1, BlockDeviceMappings=[volume]))


class Tagged:
    """What is made here."""

    def __init__(self) -> None:
        self.rig = Rig()
        self.rig.region.answers["create_tags"] = {}
        self.executor = ManualExecutor()
        self.tags = BatchTags(PROVIDER, self.rig.adapter.client, self.executor, self.rig.clock)

    def seen(self, *records: AwsRecord, seconds: float = 1) -> None:
        self.rig.clock.now += seconds
        self.tags.seen(records)

    @property
    def calls(self) -> list[dict[str, Any]]:
        return [arguments for name, arguments in self.rig.region.calls if name == "create_tags"]


@pytest.fixture
def tagged() -> Tagged:
    return Tagged()


def test_what_runs_gets_its_tags(tagged: Tagged) -> None:
    """CM-1: one call for an instance and its volumes; lists that are late do not make a second one."""
    tagged.tags.made([record()])
    tagged.seen(record("pending"), seconds=OWN_SECONDS)
    assert tagged.calls == []
    tagged.seen(record())
    assert tagged.calls == [{"Resources": ["i-8", "vol-8"], "Tags": OWN}]
    tagged.seen(record(), record("terminated", record_id="i-9"))
    tagged.seen(record(tags=[*COMMON, *OWN]))
    assert len(tagged.calls) == 1


def test_what_ends_soon_needs_none(tagged: Tagged) -> None:
    """No call is made for an instance that is used for seconds only."""
    tagged.tags.made([record()])
    tagged.seen(record(), seconds=OWN_SECONDS - 1)
    tagged.seen(record("shutting-down"), seconds=2)
    assert tagged.calls == []


def test_of_another_launcher(tagged: Tagged) -> None:
    """It was killed, or it is about to set them: they are set only if they are missing for long."""
    tagged.seen(record())
    tagged.seen(record(), seconds=OTHERS_SECONDS - 1)
    assert tagged.calls == []
    tagged.seen(record())
    assert len(tagged.calls) == 1


def test_of_another_provider(tagged: Tagged) -> None:
    foreign = record(tags=[{"Key": PROVIDER_KEY, "Value": "other"}, COMMON[1]])
    for _ in range(3):
        tagged.seen(foreign, seconds=OTHERS_SECONDS)
    assert tagged.calls == []


@pytest.mark.parametrize("code", ["InternalError", "InvalidInstanceID.NotFound"])
def test_trouble(tagged: Tagged, code: str) -> None:
    """A later list shows that they are missing."""
    tagged.rig.region.answers["create_tags"] = error(code)
    tagged.tags.made([record()])
    tagged.seen(record(), seconds=OWN_SECONDS)
    tagged.rig.region.answers["create_tags"] = {}
    before = len(tagged.calls)
    tagged.seen(record())
    assert len(tagged.calls) == before
    tagged.seen(record(), seconds=AGAIN_SECONDS)
    assert len(tagged.calls) == before + 1


def test_gone_before_its_turn(tagged: Tagged) -> None:
    """The call of what no list shows any more is not made."""
    tagged.executor.eager = False
    tagged.tags.made([record()])
    tagged.seen(record())
    tagged.seen(seconds=2 * AGAIN_SECONDS)
    tagged.executor.run()
    assert tagged.calls == []
    assert tagged.tags._wanted == {}
    assert tagged.tags._due == {}


def test_one_call_at_a_time(tagged: Tagged) -> None:
    """Tags of a burst take one thread, and no more."""
    tagged.executor.eager = False
    records = [record(record_id=f"i-{number}") for number in range(30)]
    tagged.tags.made(records)
    tagged.seen(*records, seconds=OWN_SECONDS)
    assert len(tagged.executor.waiting) == 1
    tagged.executor.run()
    assert len(tagged.calls) == 30
