# SPDX-License-Identifier: Apache-2.0
"""The next attempt has the names of the last one, and what is told of both comes in any order (KU-2, KU-10, KU-11)."""

from __future__ import annotations

import base64
import logging
from collections.abc import Iterator
from typing import Any, Final

import pytest

from nodepool.driver.framework.cloud_errors import CloudRefused, CloudSetup
from nodepool.driver.kubernetes.adapter import KubernetesAdapter
from nodepool.driver.kubernetes.cloud import KubeCloud
from nodepool.driver.kubernetes.create import NamespaceCreation
from nodepool.driver.kubernetes.records import PLACE, POD, SECRET, KubeRecord
from nodepool.driver.statemachine import CreationKey
from nodepool.logconfig import ContextLogger
from tests.support.manual_executor import ManualExecutor
from tests.unit.driver.kubernetes.stand_in import StandIn
from tests.unit.driver.kubernetes.test_objects import METADATA, label_of

KEY = CreationKey("cluster", "7", 1)
PLACES: Final = "/api/v1/namespaces"
#: What a watch tells: kind, object, is it gone?
Event = tuple[str, dict[str, Any], bool]


def meta(name: str, uid: str) -> dict[str, Any]:
    return {"name": name, "namespace": "main-7", "uid": uid, "labels": METADATA}


def place(attempt: str, **more: Any) -> dict[str, Any]:
    return {"metadata": {**meta("main-7", f"place-{attempt}"), **more}}


def pod(attempt: str, phase: str = "Running", **more: Any) -> dict[str, Any]:
    return {"metadata": {**meta("pod", f"pod-{attempt}"), **more}, "status": {"phase": phase}}


def secret(attempt: str) -> dict[str, Any]:
    data = {"token": base64.b64encode(f"token-{attempt}".encode()).decode()}
    found = meta("zuul-worker", f"secret-{attempt}")
    return {"type": "kubernetes.io/service-account-token", "metadata": found, "data": data}


#: What each watch tells, in its order.
TOLD: Final[list[list[Event]]] = [
    [(PLACE, place("old"), True), (PLACE, place("new"), False)],
    [(POD, pod("old"), False), (POD, pod("old"), True), (POD, pod("new"), False)],
    [(SECRET, secret("old"), True), (SECRET, secret("new"), False)],
]


def orders(watches: list[list[Event]]) -> Iterator[list[Event]]:
    """All orders in which watches can tell what each of them tells in its own order."""
    left = [watch for watch in watches if watch]
    if not left:
        yield []
    for index, watch in enumerate(left):
        for rest in orders([*left[:index], watch[1:], *left[index + 1 :]]):
            yield [watch[0], *rest]


@pytest.fixture
def client() -> StandIn:
    found = StandIn()
    found.answers["POST", PLACES] = place("new")
    found.answers["POST", f"{PLACES}/main-7/pods"] = pod("new", "Pending")
    found.answers["POST", f"{PLACES}/main-7/secrets"] = secret("new")
    return found


@pytest.fixture
def cloud(client: StandIn) -> Iterator[KubeCloud]:
    made = cloud_of(client)
    yield made
    made.stop()


def cloud_of(client: StandIn) -> KubeCloud:
    """One that knows what the last attempt has made."""
    cloud = KubeCloud("cluster", client)
    cloud.accounts.stop()
    for kind, found in ((PLACE, place("old")), (POD, pod("old")), (SECRET, secret("old"))):
        cloud.changed(kind, found, gone=False)
    return cloud


@pytest.fixture
def launch(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes a launch; its instance is the record."""
    monkeypatch.setattr(NamespaceCreation, "instance", lambda self, record: record)
    log = ContextLogger(logging.getLogger("test"))
    return lambda cloud: NamespaceCreation(cloud, label_of(), METADATA, None, log)


def look(machine: NamespaceCreation) -> KubeRecord | None:
    """As a step does that was woken; None = the launch waits."""
    record = machine.cloud.inventory.get("main-7")
    if record is None:
        assert not machine.cloud.inventory.is_gone("main-7"), "that is the end of the last attempt"
        return None
    found: Any = machine.seen(record)
    assert bool(found) == machine.lets_go_on(record)
    return found or None


def uids(record: KubeRecord | None) -> tuple[str, str, str]:
    assert record is not None
    assert record.pod is not None
    assert record.token is not None
    return record.uid, record.pod.uid, record.token.token


def test_whatever_is_told_first(client: StandIn, launch: Any) -> None:
    """KU-2, KU-10: a launch takes nothing of the last attempt, and waits for nothing that was told already."""
    count = 0
    for events in orders(TOLD):
        cloud, count = cloud_of(client), count + 1
        machine = launch(cloud)
        machine.create(KEY)
        for kind, found, gone in events[:-1]:
            cloud.changed(kind, found, gone)
            assert look(machine) is None, events
        kind, found, gone = events[-1]
        cloud.changed(kind, found, gone)
        assert uids(look(machine)) == ("place-new", "pod-new", "token-new"), events
        cloud.stop()
    assert count == 210


def test_last_namespace_that_is_still_going(cloud: KubeCloud, launch: Any) -> None:
    """KU-10: what is told late of the last namespace, and of its pod, does not end the launch."""
    machine = launch(cloud)
    machine.create(KEY)
    cloud.changed(PLACE, place("old", deletionTimestamp="now"), gone=False)
    cloud.changed(POD, pod("old", "Failed"), gone=False)
    assert look(machine) is None
    cloud.changed(PLACE, place("new"), gone=False)
    assert look(machine) is None


def test_end_that_is_told_while_the_next_is_made(cloud: KubeCloud, client: StandIn, launch: Any) -> None:
    """KU-10: the end of the last namespace comes before the answer to the order of the next one."""
    cloud.awaited("main-7", "pod")
    cloud.changed(PLACE, place("old"), gone=True)
    cloud.made("main-7", "place-new")
    assert not cloud.inventory.is_gone("main-7")


def test_list_while_a_watch_is_silent(cloud: KubeCloud, client: StandIn, launch: Any) -> None:
    """KU-11: the namespace is told by a list only; its pod and its token were told by their watches."""
    machine = launch(cloud)
    machine.create(KEY)
    cloud.changed(POD, pod("new"), gone=False)
    cloud.changed(SECRET, secret("new"), gone=False)
    client.lists = [([place("new")], "2")]
    cloud.inventory.refresh(complete=True)
    assert uids(look(machine)) == ("place-new", "pod-new", "token-new")


def test_what_is_asked_for(cloud: KubeCloud, client: StandIn, launch: Any) -> None:
    """KU-3: without watches of pods and secrets each launch asks for its own, whatever is known of the last attempt."""
    for kind in (POD, SECRET):
        cloud.refused(kind, CloudSetup("no", 403))
    machine = launch(cloud)
    machine.create(KEY)
    client.answers["GET", f"{PLACES}/main-7/pods/pod"] = pod("new")
    client.answers["GET", f"{PLACES}/main-7/secrets/zuul-worker"] = secret("new")
    cloud.changed(PLACE, place("old"), gone=True)
    cloud.changed(PLACE, place("new"), gone=False)
    client.lists = [([place("new")], "2")]
    cloud.inventory.refresh(complete=True)
    assert uids(look(machine)) == ("place-new", "pod-new", "token-new")


OTHER = CloudRefused("no", 409, "Precondition failed: UID in precondition", "Conflict")


def test_late_deletion_of_a_stray(client: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    """KU-12: a namespace shows up after its creation was given up; the next attempt's is not deleted in its place."""
    cloud, others = KubeCloud("cluster", client), ManualExecutor(eager=False)
    monkeypatch.setattr(cloud, "others", others)
    cloud.creations.given_up(cloud.creations.begin(KEY))
    cloud.changed(PLACE, place("old"), gone=False)
    cloud.changed(PLACE, place("new"), gone=False)
    client.answers["DELETE", f"{PLACES}/main-7"] = OTHER
    others.run()
    assert deleted(client) == ["place-old"]
    cloud.stop()


def test_late_deletion_of_a_leak(client: StandIn) -> None:
    """KU-12: another launcher has made a namespace of the name since the list that had the leak."""
    adapter = KubernetesAdapter(label_of().pool.provider, client)
    client.lists = [([place("old")], "1")]
    (leak,) = adapter.listResources()
    adapter.cloud.changed(PLACE, place("new"), gone=False)
    client.answers["DELETE", f"{PLACES}/main-7"] = OTHER
    adapter.deleteResource(leak)
    assert deleted(client) == ["place-old"]
    adapter.stop()


def deleted(client: StandIn) -> list[str]:
    return [body["preconditions"]["uid"] for method, _, body in client.calls if method == "DELETE"]
