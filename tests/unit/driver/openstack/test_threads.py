# SPDX-License-Identifier: Apache-2.0
"""How many threads a provider has (architecture.rst, "Threads of a cloud's provider")."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from nodepool.driver.framework.shared_threads import MAX_THREADS
from nodepool.driver.openstack import OpenStackDriver
from nodepool.driver.statemachine import StateMachineProvider
from nodepool.model import states
from nodepool.testing.memory_zk import MemoryZooKeeper
from simulators.openstack import OpenStackSimulator
from tests.support.driver_site import DriverSite
from tests.support.wait import DEADLINE_SECONDS, wait_for

#: Of the provider; a simulator in the same process has threads of its own.
NAME = "cloud-threads"
#: The scheduler's thread, the one that lists servers, and the one that waits for connections.
OWN_THREADS = 3
NODES = 60


def own_threads() -> list[str]:
    """Names of the provider's threads."""
    return sorted(thread.name for thread in threading.enumerate() if NAME in thread.name)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DriverSite]:
    with OpenStackSimulator() as simulator:
        simulator.change(boot_seconds=(0.05, 0.2), delete_seconds=(0.05, 0.2))
        file = simulator.write_clouds_yaml(tmp_path / "clouds.yaml")
        monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(file))
        label = {"name": "small", "cloud-image": "debian", "min-ram": 512, "host-key-checking": False}
        section = {
            "name": NAME,
            "driver": "openstack",
            "cloud": "simulator",
            "rate": 0,
            "cloud-images": [{"name": "debian", "image-name": "cloud-image", "username": "debian"}],
            "pools": [{"name": "main", "networks": ["provider"], "labels": [label]}],
        }
        made = DriverSite(OpenStackDriver(), section, MemoryZooKeeper())
        yield made
        made.end()


def test_calls_of_steps_are_made_in_their_thread(site: DriverSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps and calls share their threads: to wake another one for each call, and for its end, costs more than both."""
    threads = cast(StateMachineProvider, site.provider)._threads.shared
    handed_over: list[str] = []
    hand_over = threads._hand_over

    def counted(work: Any) -> bool:
        handed_over.append(threading.current_thread().name)
        return hand_over(work)

    monkeypatch.setattr(threads, "_hand_over", counted)
    (node,) = site.serve("small")
    node.state = states.DELETING
    site.zk.nodes.lock_and_save(node)
    cast(StateMachineProvider, site.provider).startNodeCleanup(node).join(DEADLINE_SECONDS)
    assert handed_over
    assert not [name for name in handed_over if name in {f"{NAME}-step", f"{NAME}-create", f"{NAME}-call"}]


def test_burst(site: DriverSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """A burst takes no more threads than the provider may have; an idle provider has next to none."""
    provider = cast(StateMachineProvider, site.provider)
    monkeypatch.setattr(provider._threads.shared, "_idle_seconds", 0.05)
    site.serve("small")
    wait_for("it is idle", lambda: len(own_threads()) <= OWN_THREADS)
    peak: list[int] = []
    start = threading.Thread.start

    def counted(thread: threading.Thread) -> None:
        start(thread)
        peak.append(len(own_threads()))

    monkeypatch.setattr(threading.Thread, "start", counted)
    nodes = site.serve(*["small"] * NODES)
    assert len(nodes) == NODES
    deletions = []
    for node in nodes:
        node.state = states.DELETING
        site.zk.nodes.lock_and_save(node)
        deletions.append(provider.startNodeCleanup(node))
    for deletion in deletions:
        deletion.join(DEADLINE_SECONDS)
        assert not deletion.is_alive()
    assert OWN_THREADS < max(peak) <= MAX_THREADS + OWN_THREADS
    wait_for("it is idle again", lambda: len(own_threads()) <= OWN_THREADS)
