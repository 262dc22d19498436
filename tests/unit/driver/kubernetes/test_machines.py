# SPDX-License-Identifier: Apache-2.0
"""Launches and deletions, and what watches and lists say meanwhile, in any order."""

from __future__ import annotations

import base64
import logging
from collections.abc import Iterator
from typing import Any, Final

import pytest

from nodepool.clock import monotonic
from nodepool.driver.framework.cloud_errors import CloudNotFound, CloudRefused, CloudSetup
from nodepool.driver.kubernetes import objects
from nodepool.driver.kubernetes.client import CLUSTER_ROLES
from nodepool.driver.kubernetes.cloud import KIND, DefaultAccounts, KubeCloud, SharedRoles
from nodepool.driver.kubernetes.create import (
    MENDING_SECONDS,
    NamespaceCreation,
    PodJudge,
)
from nodepool.driver.statemachine import CreationKey, Order
from nodepool.exceptions import LaunchStatusException, NotFound
from nodepool.logconfig import ContextLogger
from tests.support.manual_clock import ManualClock
from tests.support.tables import driver_table
from tests.unit.driver.kubernetes.stand_in import METADATA, StandIn, label_of

LOG = ContextLogger(logging.getLogger("test"))
KEY = CreationKey("cluster", "7", 1)
PLACES: Final = "/api/v1/namespaces"
PATH: Final = f"{PLACES}/main-7"
BINDINGS: Final = "/apis/rbac.authorization.k8s.io/v1/namespaces/main-7/rolebindings"
EXISTS = CloudRefused("exists", 409, "exists", "AlreadyExists")
FORBIDDEN = CloudRefused("no", 403, "403 Forbidden")
OTHER_UID = CloudRefused("no", 409, "Precondition failed: UID in precondition", "Conflict")
NO_RIGHT = CloudSetup("no", 403)
#: What a watch shows: kind, object, was it deleted?
Event = tuple[str, dict[str, Any], bool]


def meta(name: str, uid: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "namespace": "main-7", "uid": uid, "labels": METADATA, **more}


def place(attempt: str, name: str = "main-7", **more: Any) -> dict[str, Any]:
    return {"metadata": meta(name, f"place-{attempt}", **more)}


def pod(attempt: str, phase: str = "Running", **status: Any) -> dict[str, Any]:
    return {"metadata": meta("pod", f"pod-{attempt}"), "status": {"phase": phase, **status}}


def secret(attempt: str) -> dict[str, Any]:
    data = {"token": base64.b64encode(f"token-{attempt}".encode()).decode()}
    return {
        "type": "kubernetes.io/service-account-token",
        "metadata": meta("zuul-worker", f"secret-{attempt}"),
        "data": data,
    }


@pytest.fixture
def client() -> StandIn:
    found = StandIn()
    found.answers["POST", PLACES] = place("new")
    found.answers["GET", PATH] = place("new")
    found.answers["POST", f"{PATH}/pods"] = pod("new", "Pending")
    found.answers["POST", f"{PATH}/secrets"] = secret("new")
    return found


@pytest.fixture
def cloud(client: StandIn) -> Iterator[KubeCloud]:
    made = KubeCloud("cluster", client)
    made.accounts.stop()
    yield made
    made.stop()


# -- what is there, and what is not any more --


@pytest.mark.parametrize(("steps", "uid", "gone"), driver_table("kubernetes", "known_namespaces"))
def test_what_is_known(cloud: KubeCloud, client: StandIn, steps: list[list[Any]], uid: str | None, gone: bool) -> None:
    """KU-10, KU-11, KU-12: no call is made to know that a namespace is there, or is not."""
    begun = 0.0
    for what, *uids in steps:
        found = [place(each) if isinstance(each, str) else each for each in uids if each]
        if what == "begin":
            begun = monotonic()
        elif what == "watch":
            cloud.listed(objects.PLACE, found, begun)
        elif what == "list":
            client.lists = [(found, "1")]
            cloud.inventory.refresh(complete=True)
        elif what == "launch":
            cloud.awaited("main-7", "pod")
        elif what in ("pod", "secret", "no secret"):
            cloud.changed(
                *((objects.POD, pod("old")) if what == "pod" else (objects.SECRET, secret("old"))), gone=what[0] == "n"
            )
        elif what in ("seen", "end"):
            cloud.changed(objects.PLACE, found[0], gone=what == "end")
        if what in ("launch", "made") and found:
            cloud.made("main-7", f"place-{uids[0]}")
    record = cloud.inventory.get("main-7")
    assert (record and record.uid, cloud.inventory.is_gone("main-7")) == (uid and f"place-{uid}", gone)
    assert client.calls == []


# -- deletions --


@pytest.mark.parametrize(
    ("known", "there", "answers", "outcome"),
    [
        ("old", None, [{}], "place-old"),
        # Ordered twice it is no error.
        ("old", None, [CloudRefused("busy", 409, "409 Conflict: content is being removed", "Conflict")], "place-old"),
        # Another launcher has made it anew: the watch is late.
        ("old", place("new"), [OTHER_UID, {}], "place-new"),
        ("", place("new"), [{}], "place-new"),
        # A namespace of another user is not deleted, whatever its name is.
        ("old", {"metadata": {"name": "main-7", "uid": "theirs"}}, [OTHER_UID], NotFound),
        ("", {"metadata": {"name": "main-7", "labels": {}}}, [], NotFound),
        ("", CloudNotFound("no", 404), [], NotFound),
    ],
)
def test_orders_to_delete(
    cloud: KubeCloud, client: StandIn, known: str, there: Any, answers: list[Any], outcome: Any
) -> None:
    """KU-11, KU-12: in the background, of this very namespace."""
    if known:
        cloud.listed(objects.PLACE, [place(known)], 0.0)
    client.answers["GET", PATH], client.answers["DELETE", PATH] = there, list(answers)
    if outcome is NotFound:
        with pytest.raises(NotFound):
            cloud.delete_instance("main-7")
    else:
        cloud.delete_instance("main-7")
        assert client.calls[-1][2]["propagationPolicy"] == "Background"
        assert deleted(client)[-1] == outcome
        # The end of the attempt before is not its end.
        cloud.changed(objects.PLACE, place("old"), gone=True)
        assert cloud.inventory.is_gone("main-7") is (outcome == "place-old")
    assert len(deleted(client)) == len(answers)


def deleted(client: StandIn) -> list[str]:
    return [body["preconditions"]["uid"] for method, _, body in client.calls if method == "DELETE"]


# -- the next attempt has the names of the last one --

#: What each watch shows, in its order.
TOLD: Final[list[list[Event]]] = [
    [(objects.PLACE, place("old"), True), (objects.PLACE, place("new"), False)],
    [(objects.POD, pod("old"), False), (objects.POD, pod("old"), True), (objects.POD, pod("new"), False)],
    [(objects.SECRET, secret("old"), True), (objects.SECRET, secret("new"), False)],
]


def orders(watches: list[list[Event]]) -> Iterator[list[Event]]:
    """All orders in which watches can show what each of them shows in its own order."""
    left = [watch for watch in watches if watch]
    if not left:
        yield []
    for index, watch in enumerate(left):
        for rest in orders([*left[:index], watch[1:], *left[index + 1 :]]):
            yield [watch[0], *rest]


class Launch(NamespaceCreation):
    """After an attempt whose namespace, pod and secret are known. Its instance is the record."""

    def __init__(self, client: StandIn) -> None:
        cloud = KubeCloud("cluster", client)
        cloud.accounts.stop()
        for kind, found in ((objects.PLACE, place("old")), (objects.POD, pod("old")), (objects.SECRET, secret("old"))):
            cloud.changed(kind, found, gone=False)
        super().__init__(cloud, Order("np7", label_of(), None, METADATA, None, None, LOG))
        self.create(KEY)

    def instance(self, record: objects.KubeRecord) -> Any:
        return record

    def look(self) -> tuple[str, str, str] | None:
        """Of the step that a watch wakes: the uids of what it goes on with; None = the launch waits."""
        record = self.cloud.inventory.get("main-7")
        if record is None:
            assert not self.cloud.inventory.is_gone("main-7"), "that is the end of the last attempt"
            return None
        found: Any = self.seen(record)
        assert bool(found) == self.lets_go_on(record)
        return (found.uid, found.pod.uid, found.token.token) if found else None


NEW = ("place-new", "pod-new", "token-new")


def test_whatever_is_told_first(client: StandIn) -> None:
    """KU-2, KU-10: a launch takes nothing of the last attempt, and waits for nothing that was shown already."""
    count = 0
    for events in orders(TOLD):
        launch, count = Launch(client), count + 1
        for event in events:
            assert launch.look() is None, events
            launch.cloud.changed(*event)
        assert launch.look() == NEW, events
        launch.cloud.stop()
    assert count == 210


# -- what is made --


@pytest.fixture
def accounts() -> Iterator[DefaultAccounts]:
    """Without a thread: tests tell what the watch would tell."""
    made = DefaultAccounts(StandIn())
    made.stop()
    yield made
    made.join()


def test_who_waits_for_an_account(accounts: DefaultAccounts) -> None:
    """KU-2, KU-10: each is woken once for its own; none waits before the watch begins, or without the right."""
    woken: list[str] = []

    def wait(name: str) -> None:
        accounts.wait_for(name, lambda: woken.append(name))

    def tell(name: str, gone: bool = False) -> None:
        accounts.changed(KIND, {"metadata": {"name": "default", "namespace": name}}, gone=gone)

    def missing() -> str:
        return "".join(name for name in "abc" if accounts.is_missing(name))

    wait("a")
    wait("b")
    assert missing() == ""
    accounts.listed(KIND, [], 0.0)
    assert missing() == "ab"
    for name in ("a", "a", "other"):
        tell(name)
    assert (woken, missing()) == (["a"], "b")
    # The account of the attempt before says nothing; the watch may have missed its end, and begin anew.
    wait("a")
    assert missing() == "ab"
    tell("a")
    accounts.listed(KIND, [], 0.0)
    assert missing() == "ab"
    tell("b")
    tell("b", gone=True)
    assert missing() == "ab"
    accounts.over("b")
    accounts.refused(KIND, NO_RIGHT)
    assert (woken[1:], missing()) == (["a", "b", "a"], "")
    accounts.listed(KIND, [], 0.0)
    accounts.refused(KIND, None)
    assert missing() == "a"


# -- cluster roles that stand for the role in each namespace --


@pytest.mark.parametrize(
    ("post", "name"),
    [
        ({"metadata": {"uid": "r"}}, True),
        (EXISTS, True),
        (FORBIDDEN, False),
        # An API server that is not well says nothing about rights.
        (CloudRefused("no", 422, "422 Invalid"), CloudRefused),
    ],
)
def test_shared_role(client: StandIn, post: Any, name: Any) -> None:
    """KU-3: one that is there is used; a role of the namespace only without the right."""
    client.answers["POST", CLUSTER_ROLES] = post
    shared = SharedRoles(client)
    if name is CloudRefused:
        with pytest.raises(CloudRefused):
            shared.name_of(True)
        return
    for _ in range(3):
        assert shared.name_of(True) == ("nodepool-zuul-restricted" if name else None)
    assert [path for _, path, _ in client.calls].count(CLUSTER_ROLES) == 1


# -- what the status of a pod means --


@pytest.mark.parametrize(("status", "verdict"), driver_table("kubernetes", "verdicts"))
def test_verdicts(status: Any, verdict: dict[str, Any] | str) -> None:
    """KU-4, KU-9, KU-10: a pod that runs is a node; else the cluster's own words."""
    found = objects.of_pod({"spec": {"restartPolicy": "Never"}, "status": status})
    if isinstance(verdict, str):
        assert found.fatal
        assert verdict in found.problem
    else:
        assert found == objects.Verdict(**verdict)


def test_pod_of_a_launch() -> None:
    """KU-9, KU-10: trouble that may mend itself has some seconds, which begin anew; what others delete is the end."""

    def view(terminating: bool = False, **verdict: Any) -> objects.PodView:
        pod = objects.PodView({"metadata": {"name": "p", "namespace": "main-7", "uid": "u"}})
        return pod._replace(terminating=terminating, verdict=objects.Verdict(**verdict))

    clock = ManualClock().rules()
    judge = PodJudge("where", LOG)
    trouble = view(problem="CreateContainerConfigError", later=True)
    for _ in range(2):
        assert not judge.look(trouble)
        assert (judge.waits_for, judge.next_look(60.0)) == ("CreateContainerConfigError", MENDING_SECONDS)
        clock.pass_seconds(MENDING_SECONDS - 1)
        assert not judge.look(trouble)
        assert judge.look(view(ready=True))
    judge.look(trouble)
    clock.pass_seconds(MENDING_SECONDS)
    for pod, words in ((trouble, "Config"), (None, "by another program"), (view(True, ready=True), "being deleted by")):
        with pytest.raises(LaunchStatusException, match=words):
            judge.look(pod)
