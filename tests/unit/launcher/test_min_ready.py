# SPDX-License-Identifier: Apache-2.0
"""Nodes that are kept ready, by single passes of the worker (rules M)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from nodepool.driver.fake import FakeProvider
from nodepool.driver.fake.cloud import FakeCloud
from nodepool.launcher.supervisor import PACE_SECONDS, MinReadyWorker
from nodepool.model.reasons import Reason, ReasonCode
from tests.support.local_launcher import fake_provider
from tests.support.manual_clock import ManualClock, monotonic_clock
from tests.support.pool_znodes import REQUESTS, PoolZnodes
from tests.support.still_launcher import StillLauncher
from tests.unit.launcher.conftest import Passes, Patch, Still, home, raising


class Kept(Passes):
    """A launcher that keeps two nodes of the label ``small``, and none of two others."""

    def __init__(self, launcher: StillLauncher, znodes: PoolZnodes, clock: ManualClock) -> None:
        self.worker = launcher.nodepool.min_ready.current
        super().__init__(launcher, znodes, self.worker, clock)

    def requests(self) -> list[dict[str, Any]]:
        """The requests after a change and a pass."""
        self.worker.changed()
        self.run(PACE_SECONDS)
        return [self.znodes.request(request_id) or {} for request_id in self.ids()]

    def ids(self) -> list[str]:
        return self.znodes.children(REQUESTS)


@pytest.fixture
def kept(still: Still, cloud_name: str, cloud: FakeCloud, znodes: PoolZnodes, monkeypatch: pytest.MonkeyPatch) -> Kept:
    monkeypatch.setattr(home(MinReadyWorker), "LINGER_SECONDS", 0.0)
    labels = {"small": {"min-ready": 2}, "a": {"min-ready": 0}, "b": {"min-ready": -1}}
    launcher = still([fake_provider("one", tuple(labels), cloud=cloud_name)], labels=labels)
    return Kept(launcher, znodes, monotonic_clock(monkeypatch, home(MinReadyWorker)))


def test_requests(kept: Kept) -> None:
    """M-1, M-2, M-5, M-6: one request for each missing node, ephemeral, of the lowest priority, for new nodes; once.

    They go with the launcher.
    """
    for provider in kept.launcher.nodepool.providers.running.values():
        for pool in provider.provider.pools.values():
            del pool.provider  # M-3: drivers of other people need not have it
    for _ in range(3):
        found = kept.requests()
        facts = [(request["node_types"], request["reuse"], request["requestor"]) for request in found]
        assert facts == [(["small"], False, "NodePool:min-ready")] * 2
    assert all(request["event_id"] for request in found)
    assert all(request_id.startswith("900-") for request_id in kept.ids())
    assert all(kept.znodes.kazoo.get(f"{REQUESTS}/{i}")[1].ephemeralOwner for i in kept.ids())
    kept.worker.on_stop()
    assert kept.ids() == []


def test_order(still: Still, cloud_name: str, cloud: FakeCloud, znodes: PoolZnodes, monkeypatch: Patch) -> None:
    """Labels come in the order of the configuration."""
    names = tuple("abcdefgh")
    launcher = still(
        [fake_provider("one", names[::-1], cloud=cloud_name)],
        labels={name: {"min-ready": 1} for name in names},
    )
    kept = Kept(launcher, znodes, monotonic_clock(monkeypatch, home(MinReadyWorker)))
    assert [request["node_types"] for request in kept.requests()] == [[name] for name in names]


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("labelReady", lambda *_: False),
        ("labelReady", raising(ZeroDivisionError())),
        ("heldLabels", lambda *_: {"small": Reason(ReasonCode.BACKING_HELD, "its cloud is paused")}),
    ],
)
def test_nothing_that_cannot_be_built(kept: Kept, name: str, answer: Callable[..., Any]) -> None:
    """M-3, MT-7, MT-11: only when a pool could launch it now; an error of a driver is a no."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FakeProvider, name, answer)
        assert kept.requests() == []
        patch.setattr(FakeProvider, "heldLabels", lambda *_: {"a": Reason(ReasonCode.BACKING_HELD, "another one")})
        patch.setattr(FakeProvider, "labelReady", lambda *_: True)
        assert len(kept.requests()) == 2
