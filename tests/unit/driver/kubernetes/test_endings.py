# SPDX-License-Identifier: Apache-2.0
"""What is left of nodes: nothing, wherever a launch was killed, and whatever watches do meanwhile (KU-9 to KU-12)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from nodepool.driver.kubernetes import adapter as deletions
from nodepool.driver.openshift import adapter as projects
from nodepool.driver.statemachine import CreationKey
from nodepool.exceptions import LaunchError, LaunchStatusException
from simulators.kubernetes import KubernetesSimulator
from simulators.kubernetes.kinds import PODS
from tests.support.kubernetes_place import DRIVERS, SimulatedCluster
from tests.support.wait import wait_for
from tests.unit.driver.kubernetes.simulated import LOG, creation_of, drive, make_adapter

KEY = CreationKey("cluster-a", "0000000007", 1)
pytestmark = pytest.mark.usefixtures("kubeconfig")
every_driver = pytest.mark.parametrize("driver", DRIVERS)


class Killed(Exception):
    """The launcher is killed here."""


@pytest.fixture(autouse=True)
def _short_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rights in a project that nobody saw yet are waited for."""
    monkeypatch.setattr(projects, "RIGHTS_SECONDS", 0.3)


@pytest.fixture
def adapter_of(simulator: KubernetesSimulator) -> Iterator[Callable[..., Any]]:
    """Makes adapters; they are stopped."""
    made: list[Any] = []

    def make(driver: str, **keys: Any) -> Any:
        made.append(make_adapter(driver, **keys))
        return made[-1]

    yield make
    for adapter in made:
        adapter.stop()


def kill_after(adapter: Any, calls: int) -> None:
    """Lets it make so many calls that change something."""
    plain, left = adapter.client.call, [calls]

    def call(method: str, path: str, *arguments: Any, **named: Any) -> Any:
        if method == "POST":
            if not left[0]:
                raise Killed
            left[0] -= 1
        return plain(method, path, *arguments, **named)

    adapter.client.call = call


def create_as_far_as_it_goes(machine: Any) -> None:
    while True:
        try:
            machine.create(KEY)
        except Killed:
            return
        except LaunchError as error:
            # Rights in a project come a moment later.
            if machine.put_off(error) is None:
                raise
        else:
            return


@every_driver
@pytest.mark.parametrize("calls", range(7))
def test_killed_after_each_call(
    simulator: KubernetesSimulator, adapter_of: Callable[[str], Any], driver: str, calls: int
) -> None:
    """KU-9: the node names what is made before anything is: its successor deletes it, wherever the launch ended."""
    first = adapter_of(driver)
    machine = creation_of(first, driver)
    machine.advance()
    external_id = machine.external_id
    assert external_id
    kill_after(first, calls)
    create_as_far_as_it_goes(machine)
    first.stop()
    drive(adapter_of(driver).getDeleteStateMachine(external_id, LOG))
    wait_for("nothing is left", lambda: not SimulatedCluster(simulator).names())


@every_driver
def test_nothing_was_made(simulator: KubernetesSimulator, adapter_of: Callable[[str], Any], driver: str) -> None:
    """KU-11: the deletion of what is not there ends at once, and so does a provider that has just begun to watch."""
    adapter = adapter_of(driver)
    drive(adapter.getDeleteStateMachine("main-0000000099" if driver != "openshiftpods" else "shared-pod-99", LOG))
    adapter.stop()


@every_driver
@pytest.mark.parametrize("deed", ["cut", "expire", "both"])
def test_watches_end(simulator: KubernetesSimulator, adapter_of: Callable[[str], Any], driver: str, deed: str) -> None:
    """KU-10: a watch that breaks is resumed; after 410 all is listed again; nothing is missed."""
    simulator.change(start_seconds=(0.3, 0.3))
    adapter = adapter_of(driver)

    def disturb() -> None:
        with simulator.cloud() as cluster:
            if deed != "cut":
                cluster.store.forget()
            if deed != "expire":
                cluster.cut_watches()

    machine = creation_of(adapter, driver)
    drive(machine, lambda machine: machine.state == machine.BUILDING)
    disturb()
    drive(machine)
    deletion = adapter.getDeleteStateMachine(machine.external_id, LOG)
    drive(deletion, lambda machine: machine.complete or machine.state == machine.WAITING)
    disturb()
    drive(deletion)
    # Of a project that is going its owner sees nothing, because the rights go first.
    wait_for("nothing is left", lambda: not SimulatedCluster(simulator).names())


@pytest.mark.parametrize("driver", ["kubernetes", "openshift"])
def test_what_is_stuck_in_terminating_is_told(
    simulator: KubernetesSimulator,
    adapter_of: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    driver: str,
) -> None:
    """KU-11, OS-5: the machine waits until the namespace is gone, and says which finalizer holds it."""
    monkeypatch.setattr(deletions, "STUCK_SECONDS", 0.2)
    adapter = adapter_of(driver, context="admin")
    machine = creation_of(adapter, driver, label="space")
    drive(machine)
    with simulator.cloud() as cluster:
        cluster.hold(machine.external_id)
    deletion = adapter.getDeleteStateMachine(machine.external_id, LOG)
    drive(deletion, lambda _: "example.org/hold" in caplog.text)
    assert not deletion.complete
    with simulator.cloud() as cluster:
        cluster.release(machine.external_id)
    drive(deletion)


def test_stuck_project_of_a_self_provisioner(simulator: KubernetesSimulator, adapter_of: Callable[..., Any]) -> None:
    """OS-5: the rights in a project go before it: what its owner does not see any more is gone, as documented."""
    adapter = adapter_of("openshift")
    machine = creation_of(adapter, "openshift", label="space")
    drive(machine)
    with simulator.cloud() as cluster:
        cluster.hold(machine.external_id)
    drive(adapter.getDeleteStateMachine(machine.external_id, LOG))
    with simulator.cloud() as cluster:
        assert machine.external_id in cluster.namespaces()
        cluster.release(machine.external_id)


def test_pod_that_vanishes(simulator: KubernetesSimulator, adapter_of: Callable[[str], Any]) -> None:
    """KU-10: somebody deletes a pod during its launch: that is told, and not waited for."""
    simulator.change(start_seconds=(60.0, 60.0))
    adapter = adapter_of("kubernetes")
    machine = creation_of(adapter, "kubernetes")
    drive(machine, lambda machine: machine.state == machine.BUILDING)
    wait_for("the pod is known", lambda: getattr(adapter.cloud.inventory.get("main-0000000007"), "pod", None))
    machine.advance()
    with simulator.cloud() as cluster:
        (pod,) = cluster.store.all(PODS, "main-0000000007")
        cluster.vanish("main-0000000007", pod["metadata"]["name"])
    with pytest.raises(LaunchStatusException, match="deleted by somebody else"):
        drive(machine)
    drive(adapter.getDeleteStateMachine("main-0000000007", LOG))


def test_two_watches_tell_of_one_node(simulator: KubernetesSimulator, adapter_of: Callable[[str], Any]) -> None:
    """KU-11: the end of a secret that is told late does not bring back a namespace whose end was told already."""
    cloud = adapter_of("kubernetes").cloud
    place = {"metadata": {"name": "main-1", "uid": "u", "labels": {"nodepool_provider_name": "cluster-a"}}}
    secret = {
        "type": "kubernetes.io/service-account-token",
        "metadata": {"name": "zuul-worker", "namespace": "main-1", "uid": "s"},
    }
    cloud.changed("place", place, gone=False)
    cloud.changed("secret", secret, gone=False)
    held, put = [], cloud.inventory.put

    def put_late(record: Any) -> None:
        held.append(record)
        assert cloud._telling.locked()
        put(record)

    cloud.inventory.put = put_late
    cloud.changed("secret", secret, gone=True)
    cloud.changed("place", place, gone=True)
    assert len(held) == 1
    assert cloud.inventory.get("main-1") is None
    assert cloud.inventory.is_gone("main-1")
