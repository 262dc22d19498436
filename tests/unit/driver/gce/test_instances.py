# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.gce.instances`: lists, without a cloud."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from nodepool.driver.gce.adapter import GceAdapter
from nodepool.driver.gce.instances import GceInstances
from nodepool.driver.gce.types import GceRecord
from tests.unit.driver.gce.sections import ZONES, load, section


def record(name: str, zone: str = ZONES[0], **metadata: str) -> GceRecord:
    return GceRecord(f"{zone}/{name}", name, zone, "RUNNING", metadata, "n2-standard-2", False, None, None)


class Client:
    """Lists what the test wrote."""

    zones = ZONES

    def __init__(self) -> None:
        self.listed: list[GceRecord] = []
        self.away: set[str] = set()

    def instances(self) -> tuple[list[GceRecord], set[str]]:
        return list(self.listed), set(self.away)


@pytest.fixture
def client() -> Client:
    return Client()


@pytest.fixture
def instances(client: Client, monkeypatch: pytest.MonkeyPatch) -> Iterator[GceInstances]:
    adapter = GceAdapter(load(section(zone=ZONES)))
    with monkeypatch.context() as patched:
        patched.setattr(adapter.instances, "client", client)
        yield adapter.instances
    adapter.stop()


def test_part_of_a_zone(instances: GceInstances, client: Client) -> None:
    """What a zone showed before it went silent counts once."""
    one, two, other = record("np1", a="b"), record("np2", a="b"), record("np3", ZONES[1], a="b")
    client.listed = [one, two, other]
    instances.list_instances(None)
    client.listed, client.away = [one, other], {ZONES[0]}
    assert sorted(instances.list_instances(None)) == [one, two, other]
