# SPDX-License-Identifier: Apache-2.0
"""nodepool.cmd.events: what ``--subject`` finds."""

from __future__ import annotations

import pytest

from nodepool.cmd.events import is_about
from nodepool.model.event import Event

POOL = Event(0.0, "l1", "pool cloud-a/main")
LAUNCH = Event(0.0, "l1 cloud-a/main", "node 0000000001", "launch failed")


@pytest.mark.parametrize("text", ["pool", "cloud-a/main", "cloud-a", "main"])
def test_found(text: str) -> None:
    assert is_about(POOL, text)


@pytest.mark.parametrize("text", ["node", "0000000001", "cloud-a/main", "cloud-a", "main"])
def test_where_it_happened(text: str) -> None:
    """OV-5: launches are found by their provider and their pool, too."""
    assert is_about(LAUNCH, text)


@pytest.mark.parametrize("text", ["cloud", "cloud-a/", "cloud-b/main", "", "l1"])
@pytest.mark.parametrize("event", [POOL, LAUNCH], ids=lambda event: event.subject)
def test_not_found(event: Event, text: str) -> None:
    assert not is_about(event, text)
