# SPDX-License-Identifier: Apache-2.0
"""What the commands say of a cloud that is slow or stuck (rule E-10), with the times of the rule made short."""

from __future__ import annotations

import json

import pytest

from nodepool.launcher import status
from nodepool.plan import attention
from tests.support.command_line import CommandLine
from tests.support.openstack_place import Place
from tests.support.wait import wait_for


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOOK_SECONDS", "ALL_SECONDS"):
        monkeypatch.setattr(status, name, 0.1)
    for name in ("REPORTED_SECONDS", "LEAST_SECONDS", "UNKNOWN_SECONDS", "FACTOR"):
        monkeypatch.setattr(attention, name, 0.5)


@pytest.mark.parametrize(
    ("knobs", "words"),
    [
        ({"boots": [{"kind": "stuck"}]}, "it waits for the cloud, which has it and does not run it yet"),
        ({"latency_seconds": [5, 5]}, "it waits for the answer of the cloud to the call that creates it"),
    ],
    ids=["stuck", "slow"],
)
def test_a_cloud_that_does_not_go_on(place: Place, knobs: dict[str, object], words: str) -> None:
    place.launch()
    place.fulfilled(place.znodes.submit(["small"]))
    assert place.launcher is not None
    nodepool = CommandLine(place.launcher.path)
    place.simulator.change(**knobs)
    request = place.znodes.submit(["small"])
    wait_for("status names the step", lambda: f"cloud-a/main: 1 of 1 launch takes long: {words}" in _line(nodepool))
    node = next(key for key in place.znodes.nodes() if (place.znodes.node(key) or {})["state"] == "building")
    assert f"node {node} waits for" in json.loads(nodepool("explain", request, "-o", "json").out)["text"]
    assert "launch-timeout ends the attempt in" in nodepool("explain", node).out
    assert nodepool("explain", "cloud-a").out.startswith("Provider cloud-a works slowly; 1 of 1 launch takes long")
    assert "launches slow" in nodepool("events").out
    place.simulator.change(latency_seconds=0, boots=[])


def _line(nodepool: CommandLine) -> str:
    return " ".join(nodepool("status").out.split())
