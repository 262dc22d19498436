# SPDX-License-Identifier: Apache-2.0
"""The circuit breaker of a provider that keeps failing: who sees it, and what becomes of its requests (F-5)."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from nodepool.launcher import status
from simulators.openstack import OpenStackSimulator
from tests.support.openstack_place import Place
from tests.support.statsd_server import StatsdServer
from tests.support.wait import wait_for


def test_rest(
    statsd: StatsdServer,
    place: Place,
    neighbour: OpenStackSimulator,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Registry, log and metrics tell; requests go to another provider with the label, or wait; then all goes on."""
    caplog.set_level("INFO")
    monkeypatch.setattr(status, "INTERNALS_SECONDS", 1.0)
    both: dict[str, Any] = {**place.label, "name": "both"}
    place.pool["labels"].append(both)
    second = place.others[0]
    second["priority"] = 200
    second["pools"][0]["labels"].append(both)
    place.launch()
    is_open = f"nodepool.launcher.{socket.gethostname()}.provider.cloud-a.circuit_open"
    statsd.wait_for(f"{is_open}:0|g")
    (node,) = place.fulfilled(place.znodes.submit(["both"]))
    assert node["provider"] == "cloud-a", "its priority is better"

    place.simulator.change(errors=[{"operation": "*", "kind": "503"}])
    waits = place.znodes.submit(["small"])
    wait_for("the registry says so", lambda: place.paused() == {"cloud-a": True, "cloud-b": False})
    assert "Provider cloud-a keeps failing (" in caplog.text
    assert "Its circuit breaker opens: no new launches until it answers again" in caplog.text
    reason = place.provider.pausedReason()
    assert reason is not None
    assert reason.startswith("the circuit breaker is open: ")
    statsd.wait_for(f"{is_open}:1|g")
    statsd.wait_for("nodepool.provider.cloud-a.circuit_opened:1|c")
    statsd.lines.clear()
    statsd.wait_for(f"{is_open}:1|g")
    (node,) = place.fulfilled(place.znodes.submit(["both"]))
    assert node["provider"] == "cloud-b"
    assert place.znodes.request_state(waits) in ("requested", "pending")
    assert (place.znodes.request(waits) or {})["declined_by"] == []

    statsd.lines.clear()
    place.simulator.change(errors=[])
    place.fulfilled(waits)
    wait_for("the registry says so", lambda: place.paused() == {"cloud-a": False, "cloud-b": False})
    assert "Provider cloud-a answers again, launches go on" in caplog.text
    statsd.wait_for(f"{is_open}:0|g")
    (node,) = place.fulfilled(place.znodes.submit(["both"]))
    assert node["provider"] == "cloud-a"
