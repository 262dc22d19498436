# SPDX-License-Identifier: Apache-2.0
"""``nodepool explain`` beside a launcher and a cloud (reference/commands 2, rule E-10)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from nodepool.launcher import status
from nodepool.plan import attention
from tests.support.command_line import CommandLine
from tests.support.openstack_place import Place
from tests.support.wait import wait_for


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    """The launcher looks at its pools more often than it does else."""
    for name in ("LOOK_SECONDS", "ALL_SECONDS"):
        monkeypatch.setattr(status, name, 0.1)


def test_with_a_launcher(place: Place) -> None:
    """E-1, E-2: what waits for room, what waits behind it, and what failed."""
    place.pool["max-servers"] = 1
    nodepool = CommandLine(place.launch().path)
    place.fulfilled(place.znodes.submit(["small"]))
    first, second = place.znodes.submit(["small"]), place.znodes.submit(["small"])
    never = place.znodes.submit(["small", "small"])
    place.failed(never)
    full = {"limit": 1, "used": 1, "needed": 1}

    def answer(name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(nodepool("explain", name, "-o", "json").out)
        return found

    def told(name: str, code: str) -> bool:
        return bool(answer(name)["code"] == code)

    wait_for("it waits for room", lambda: told(first, "room.instances"))
    wait_for("it waits behind it", lambda: told(second, "wait.pool-paused"))
    wait_for("the cause is known", lambda: told(never, "quota.too-small"))
    assert [answer(name)["numbers"] for name in (first, second)] == [full, full]
    assert [answer(name)["ahead"] for name in (first, second)] == [0, 1]
    assert answer(never)["text"].endswith("2 instances needed, the limit of pool main is 1")


def test_cloud_that_is_away(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    """The log of the look-up of an image and the explanation of the provider have the cloud's own words."""
    place.simulator.change(errors=[{"operation": f"{one}.*", "kind": "503"} for one in ("image", "compute")])
    nodepool = CommandLine(place.launch().path)
    place.znodes.submit(["small"])
    words = "503 The server is currently unavailable"
    wait_for("it is explained", lambda: words in nodepool("explain", "cloud-a").out)
    wait_for("it is logged", lambda: "its image could not be looked up: " in caplog.text)
    lines = [record.getMessage() for record in caplog.records if "could not be looked up" in record.getMessage()]
    assert all(words in line and "reports no version" not in line for line in lines)


@pytest.mark.parametrize(
    ("knobs", "words"),
    [
        ({"boots": [{"kind": "stuck"}]}, "it waits for the cloud, which has it and does not run it yet"),
        ({"latency_seconds": [5, 5]}, "it waits for the answer of the cloud to the call that creates it"),
    ],
    ids=["stuck", "slow"],
)
def test_cloud_that_does_not_go_on(
    place: Place, monkeypatch: pytest.MonkeyPatch, knobs: dict[str, object], words: str
) -> None:
    """What the commands say of a cloud that is slow or stuck, with the times of the rule made short."""
    for name in ("REPORTED_SECONDS", "LEAST_SECONDS", "UNKNOWN_SECONDS", "FACTOR"):
        monkeypatch.setattr(attention, name, 0.5)
    nodepool = CommandLine(place.launch().path)
    place.fulfilled(place.znodes.submit(["small"]))
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
