# SPDX-License-Identifier: Apache-2.0
"""The search for leaked resources of the providers, by single passes of the worker (rules C)."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from nodepool.driver.fake.cloud import FakeCloud
from nodepool.driver.fake.provider import FakeProvider
from nodepool.exceptions import CloudUnavailableException, ZKConnectionError
from tests.support.local_launcher import fake_provider
from tests.support.pool_znodes import PoolZnodes
from tests.support.wait import wait_for
from tests.unit.launcher.conftest import Still


def test_provider_that_hangs(
    still: Still, cloud_name: str, cloud: FakeCloud, znodes: PoolZnodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C-1, C-3: a cloud that does not answer holds up neither the other sweeps nor the other providers."""
    launcher = still([fake_provider(name, cloud=cloud_name) for name in ("one", "two")])
    called: list[str] = []
    release = threading.Event()

    def look(provider: FakeProvider) -> None:
        called.append(provider.name)
        if provider.name == "one":
            release.wait(30)

    monkeypatch.setattr(FakeProvider, "cleanupLeakedResources", look)
    worker = launcher.nodepool.cleanup.current
    worker.sweep()
    wait_for("both are called", lambda: sorted(called) == ["one", "two"])
    empty = znodes.create_node(b"")
    launcher.settle()
    worker.sweep()
    wait_for("the other one is called again", lambda: sorted(called) == ["one", "two", "two"])
    assert not znodes.kazoo.exists(f"/nodepool/nodes/{empty}")
    release.set()
    worker.on_stop()


def test_error_of_a_provider(
    still: Still,
    cloud_name: str,
    cloud: FakeCloud,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """C-3: logged, with the provider's name; the others are called. What a cloud says needs no traceback.

    Nor does ZooKeeper when it is away, as at the end of a launcher (found by chaos).
    """
    errors = {
        "one": RuntimeError("no way"),
        "two": CloudUnavailableException("it is away"),
        "three": ZKConnectionError("ZooKeeper: ConnectionClosedError"),
    }
    launcher = still([fake_provider(name, cloud=cloud_name) for name in errors])
    called: list[str] = []

    def look(provider: FakeProvider) -> None:
        called.append(provider.name)
        raise errors[provider.name]

    monkeypatch.setattr(FakeProvider, "cleanupLeakedResources", look)
    launcher.nodepool.cleanup.current.clean_leaks()
    launcher.nodepool.cleanup.current.on_stop()
    assert sorted(called) == sorted(errors)
    assert "Provider one: error in cleanupLeakedResources()" in caplog.text
    assert "Provider two: cleanupLeakedResources(): CloudUnavailableException: it is away" in caplog.text
    assert "Provider three: cleanupLeakedResources(): ZKConnectionError: ZooKeeper: " in caplog.text
    assert sum(record.exc_info is not None for record in caplog.records) == 1


@pytest.mark.parametrize("trouble", ["no name", "no thread"])
def test_each_provider_is_on_its_own(
    still: Still,
    cloud_name: str,
    cloud: FakeCloud,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    trouble: str,
) -> None:
    """C-3: a provider object without ``name``, or one that gets no thread, holds up none of those behind it."""
    launcher = still([fake_provider(name, cloud=cloud_name) for name in ("one", "two", "three")])
    called: list[Any] = []
    monkeypatch.setattr(FakeProvider, "cleanupLeakedResources", lambda provider: called.append(provider))
    running = launcher.nodepool.providers.running
    if trouble == "no name":
        monkeypatch.delattr(running["one"], "name")
    else:
        start = threading.Thread.start

        def refuse(thread: threading.Thread) -> None:
            if thread.name == "Leaks-one":
                raise RuntimeError("can't start new thread")
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", refuse)
    worker = launcher.nodepool.cleanup.current
    for _ in range(2):
        worker.clean_leaks()
        worker.on_stop()
    expected = {"one", "two", "three"} if trouble == "no name" else {"two", "three"}
    assert {name for name, provider in running.items() if called.count(provider) == 2} == expected
    assert ("Provider one: leaked resources are looked for in the next sweep" in caplog.text) == (
        trouble == "no thread"
    )
