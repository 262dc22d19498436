# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.example.types`."""

from __future__ import annotations

import pytest

from nodepool.driver.example.types import Machine

SHOWN = {
    "id": "m-1",
    "name": "np1",
    "status": "running",
    "address": "127.0.0.1",
    "zone": None,
    "cores": 2,
    "ram": 4096,
    "tags": {"nodepool_node_id": "1"},
}


def test_machine() -> None:
    """A record: only what is read; equal if nothing changed, so that it is no news."""
    machine = Machine.of(SHOWN)
    assert (machine.id, machine.status, machine.metadata) == ("m-1", "running", {"nodepool_node_id": "1"})
    assert (machine.address, machine.zone, machine.cores, machine.ram) == ("127.0.0.1", None, 2, 4096)
    assert (machine.gone, machine.updated) == (False, "")
    assert machine == Machine.of({**SHOWN, "name": "other"})
    assert machine != Machine.of({**SHOWN, "status": "deleting"})


def test_odd_answer() -> None:
    """Bad input: an answer that lacks something is an error of the call, not a machine without it."""
    with pytest.raises(KeyError):
        Machine.of({"id": "m-1"})
