# SPDX-License-Identifier: Apache-2.0
"""What the API of a cluster, and what stands before it, really answers: a row for each form, with its source.

The API conventions (kubernetes/community) say what may be null or absent, ``client-go`` shows what clients do.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes.client import models

from nodepool.driver.framework.cloud_errors import CloudAway, CloudNotFound, CloudRefused, NotFoundByProxy
from nodepool.driver.framework.rate import SPREAD_SECONDS, HeldTime, TimeLimit, working_for
from nodepool.driver.kubernetes.client import BUSY_ATTEMPTS, KubeClient, create, delete
from nodepool.driver.kubernetes.connection import ClusterConnection
from nodepool.driver.kubernetes.records import Verdict, of_pod
from nodepool.driver.kubernetes.watch import Listener, Watch
from tests.support.manual_clock import ManualClock
from tests.support.recording_server import RecordingServer, Sent

POD = {"metadata": {"name": "a", "namespace": "n", "uid": "1"}}
NGINX = (
    b"<html>\n<head><title>404 Not Found</title></head>\n<body><center><h1>404 Not Found</h1></center></body></html>"
)


def raw(status: int, body: Any = b"", *headers: str) -> bytes:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(content)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + content


def refused(status: int, reason: str, message: str, **more: Any) -> bytes:
    return raw(status, {"kind": "Status", "code": status, "reason": reason, "message": message, **more})


class PatientClient(KubeClient):
    """No time passes but that for which it waits."""

    def __init__(self, connection: ClusterConnection) -> None:
        self.clock = ManualClock()
        super().__init__(connection, self.clock)

    def sleep(self, seconds: float) -> None:
        self.clock.pass_seconds(seconds)


class Cluster:
    """Gives answers in turn, the last one again and again. :ivar times: when it was called."""

    def __init__(self, client: PatientClient, server: RecordingServer) -> None:
        self.client = client
        self.clock = client.clock
        self.times: list[float] = []
        self._server = server

    def answers(self, *answers: bytes) -> None:
        left = list(answers)

        def answer(_: Sent) -> bytes:
            self.times.append(self.clock.now)
            return left.pop(0) if len(left) > 1 else left[0]

        self._server.answer = answer

    @property
    def sent(self) -> list[Sent]:
        return self._server.sent


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    with RecordingServer() as server:
        config = {
            "clusters": [{"name": "c", "cluster": {"server": server.url}}],
            "users": [{"name": "u", "user": {"token": "t"}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config), encoding="utf-8")
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
        connection = ClusterConnection("p", None)
        client = PatientClient(connection)
        yield Cluster(client, server)
        client.close()
        access = connection.access()
        for pool in (access.calls, access.streams):
            pool.clear()


def page(*names: str, **meta: Any) -> dict[str, Any]:
    return {"kind": "PodList", "metadata": meta, "items": [{"metadata": {"name": name}} for name in names]}


@pytest.mark.parametrize(
    ("answers", "names", "version"),
    [
        # docs, "API concepts": retrieving large results sets in chunks; the last page has continue "" or none
        (
            [
                raw(200, page("a", **{"continue": "x", "remainingItemCount": 1})),
                raw(200, page("b", resourceVersion="7")),
            ],
            "ab",
            "7",
        ),
        # apimachinery, ListOptions.limit: "up to zero items", and only ``continue`` says whether there are more
        ([raw(200, page(**{"continue": "x"})), raw(200, page("b", resourceVersion="7"))], "b", "7"),
        ([raw(200, page("a", **{"continue": ""}, resourceVersion="7"))], "a", "7"),
        # openshift-apiserver, pkg/project/util, ConvertNamespaceList: a list without projects is null. Of its own
        # kinds the API server never says so (apiserver, storage/etcd3/store.go and storage/cacher/cacher.go).
        ([raw(200, {"items": None, "metadata": {"resourceVersion": "7"}})], "", "7"),
        ([raw(200, {"items": [], "metadata": None})], "", ""),
        # client-go, tools/pager, FullListIfExpired: 410 between pages
        (
            [
                raw(200, page("a", **{"continue": "x"})),
                refused(410, "Expired", "The provided continue parameter is too old", metadata={"continue": "y"}),
                raw(200, page("a", "b", resourceVersion="9")),
            ],
            "ab",
            "9",
        ),
    ],
)
def test_lists(cluster: Cluster, answers: list[bytes], names: str, version: str) -> None:
    cluster.answers(*answers)
    found, seen = cluster.client.list("/api/v1/pods")
    assert [pod["metadata"]["name"] for pod in found] == list(names)
    assert seen == version
    assert len(cluster.sent) == len(answers)
    if len(answers) == 3:
        assert cluster.sent[-1].first == "GET /api/v1/pods HTTP/1.1"


@pytest.mark.parametrize(
    "body",
    [b"", b"{}", b"null", b'{"kind": "Status", "status": "Success"}', b'{"items": {}}', b'{"items": [{}]}', NGINX],
)
def test_what_is_no_list(cluster: Cluster, body: bytes) -> None:
    """A proxy that answers 200 says nothing of objects: nodes must not count as gone."""
    cluster.answers(raw(200, body))
    with pytest.raises(CloudAway):
        cluster.client.list("/api/v1/pods")


def test_list_without_an_end(cluster: Cluster) -> None:
    cluster.answers(raw(200, page("a", **{"continue": "x"})))
    with pytest.raises(CloudAway, match="the list has no end"):
        cluster.client.list("/api/v1/pods")


@pytest.mark.parametrize(
    "answer",
    [
        # apiserver, endpoints/handlers/delete.go: 200 or 202, with a Status or the object
        raw(200, {"kind": "Status", "status": "Success"}),
        raw(202, POD),
        # of aggregated APIs and proxies
        raw(200),
        raw(204),
        # a deletion is under way
        refused(409, "Conflict", "The system is ensuring all content is removed from this namespace"),
    ],
)
def test_deletions(cluster: Cluster, answer: bytes) -> None:
    cluster.answers(answer)
    delete(cluster.client, "/api/v1/namespaces/n", "1")


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        # apimachinery, api/errors: NewNotFound
        (refused(404, "NotFound", 'namespaces "n" not found'), CloudNotFound),
        # net/http, NotFound, for a path that the API server does not know
        (raw(404, b"404 page not found\n"), CloudRefused),
        # of an ingress or load balancer: nothing is known of the object
        (raw(404, NGINX), NotFoundByProxy),
        (raw(404), NotFoundByProxy),
        (raw(404, b"default backend - 404"), NotFoundByProxy),
        (raw(503, NGINX), CloudAway),
        (raw(429, b"Too many requests, please try again later."), CloudAway),
        # NamespaceLifecycle of the API server: no missing right
        (
            refused(403, "Forbidden", "unable to create new content in namespace n because it is being terminated"),
            CloudRefused,
        ),
    ],
)
def test_errors(cluster: Cluster, answer: bytes, kind: type[Exception]) -> None:
    cluster.answers(answer)
    with pytest.raises(kind) as caught:
        delete(cluster.client, "/api/v1/namespaces/n", None)
    assert type(caught.value) is kind


#: Who is put off, and when the next call may begin. apiserver, util/flowcontrol and filters/maxinflight: 429 with
#: ``Retry-After: 1``; endpoints/handlers/responsewriters: ``retryAfterSeconds`` of any error becomes the header;
#: client-go, rest/with_retry: 429 and 5xx with the header.
BUSY = refused(429, "TooManyRequests", "The server has received too many requests and has asked us to try again later")
PUT_OFF = [
    (raw(429, b"Too many requests, please try again later.\n", "Retry-After: 7"), 7.0, True),
    (BUSY, 1.0, True),
    (raw(503, {"reason": "ServiceUnavailable"}, "Retry-After: 7"), 7.0, False),
    (raw(500, {"reason": "ServerTimeout", "details": {"retryAfterSeconds": 7}}, "retry-after: 7"), 7.0, False),
    (raw(503, {"reason": "ServiceUnavailable"}), 0.0, False),
]


@pytest.mark.parametrize(("answer", "pause", "again"), PUT_OFF)
def test_calls_that_are_put_off(cluster: Cluster, answer: bytes, pause: float, again: bool) -> None:
    """CM-5: no call begins before its time. 429 is the matter of the client, any other error that of the caller."""
    held, begun = HeldTime(cluster.clock), cluster.clock.now
    limit = TimeLimit(5.0, held, cluster.clock)
    cluster.answers(answer, raw(201, POD))
    with working_for((held,)):
        if not again:
            with pytest.raises(CloudAway):
                create(cluster.client, "/api/v1/namespaces/n/pods", {})
        assert create(cluster.client, "/api/v1/namespaces/n/pods", {}) == POD
    assert len(cluster.times) == 2
    assert begun + pause <= cluster.times[1] <= begun + pause + SPREAD_SECONDS
    assert limit.left == pytest.approx(5.0), "the wait counts against the time-out"


def test_permission_is_asked_when_the_turn_comes(cluster: Cluster) -> None:
    """The launch ended while its call was put off."""

    class Ended(Exception):
        pass

    def permit() -> None:
        if cluster.times:
            raise Ended

    cluster.answers(BUSY)
    with pytest.raises(Ended):
        create(cluster.client, "/api/v1/namespaces/n/pods", {}, permit)
    assert len(cluster.times) == 1


def test_put_off_again_and_again(cluster: Cluster) -> None:
    cluster.answers(BUSY)
    with pytest.raises(CloudAway) as caught:
        cluster.client.list("/api/v1/pods")
    assert not caught.value.maybe_done
    assert len(cluster.times) == BUSY_ATTEMPTS
    with pytest.raises(CloudAway, match="too many requests"):
        next(cluster.client.watch("/api/v1/pods", "5"))
    assert len(cluster.times) == 2 * BUSY_ATTEMPTS


def test_watch_that_is_put_off(cluster: Cluster) -> None:
    """What waits for its events waits while it waits for its turn."""
    heard, held = Heard(), HeldTime(cluster.clock)
    watch = Watch(cluster.client, "pod", "/api/v1/pods", "", heard, held=(held,))
    cluster.answers(LIST, raw(429, b"", "Retry-After: 60"), raw(200, event("ADDED", POD)))
    heard.stop = watch.stop
    watch.start()
    watch.join()
    assert heard.changes == [("a", False)]
    assert cluster.times[2] >= cluster.times[1] + 60
    assert held.seconds == pytest.approx(cluster.times[2] - cluster.times[1])


def test_made_without_a_body(cluster: Cluster) -> None:
    """201 without a body: it is looked at, as one that was there."""
    cluster.answers(raw(201))
    assert create(cluster.client, "/api/v1/namespaces", {}) is None


class Heard(Listener):
    def __init__(self) -> None:
        self.changes: list[tuple[str, bool]] = []
        #: Called after a change.
        self.stop: Callable[[], None] = lambda: None

    def changed(self, kind: str, found: dict[str, Any], gone: bool) -> None:
        self.changes.append((found["metadata"]["name"], gone))
        self.stop()


LIST = raw(200, {"items": [], "metadata": {"resourceVersion": "5"}})


def event(kind: str, found: Any) -> bytes:
    return json.dumps({"type": kind, "object": found}).encode() + b"\n"


@pytest.mark.parametrize(
    ("events", "changes", "again"),
    [
        # apimachinery, watch.EventType; a bookmark has a version alone
        ([event("ADDED", POD), event("DELETED", POD)], [("a", False), ("a", True)], False),
        (
            [event("BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": "9"}}), event("MODIFIED", POD)],
            [("a", False)],
            False,
        ),
        ([event("WHAT_COMES_NEXT", POD)], [], False),
        # 410 as an event: all is listed again
        ([event("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"})], [], True),
        ([event("ERROR", {"kind": "Status", "code": "410", "reason": "Gone"})], [], True),
        ([event("ERROR", {"kind": "Status", "message": "no code"})], [], False),
        ([event("ADDED", None)], [], False),
        ([b'"text"\n'], [], False),
        ([event("ADDED", {"metadata": None})], [], False),
        ([b"<html>"], [], False),
    ],
)
def test_watches(cluster: Cluster, events: list[bytes], changes: list[Any], again: bool) -> None:
    """No event ends the thread, and none makes an error of ours."""
    heard = Heard()
    watch = Watch(cluster.client, "pod", "/api/v1/pods", "", heard)
    cluster.answers(LIST, raw(200, b"".join(events)), LIST)
    watch.turn()
    assert heard.changes == changes
    assert (watch._version == "") is again


#: A container's state as ``V1ContainerState``, whose three parts may be null.
@pytest.mark.parametrize(
    ("state", "wanted"),
    [
        ({"running": {"startedAt": "2024-01-01T00:00:00Z"}, "terminated": None, "waiting": None}, Verdict(ready=True)),
        ({}, Verdict(ready=True)),
        (None, Verdict(ready=True)),
    ],
)
def test_states(state: Any, wanted: Verdict) -> None:
    status = {"phase": "Running", "containerStatuses": [{"name": "c", "state": state}], "initContainerStatuses": None}
    assert of_pod({"spec": {"restartPolicy": "Never"}, "status": status, **POD}) == wanted
    assert of_pod({"status": {"phase": "Unknown", "conditions": None}}) == Verdict()
    assert of_pod({"status": None}) == Verdict()


@pytest.mark.parametrize(
    ("model", "fields"),
    [
        (models.V1ObjectMeta, "name namespace uid labels deletionTimestamp finalizers resourceVersion"),
        (models.V1ListMeta, "continue resourceVersion"),
        (models.V1NamespaceStatus, "phase conditions"),
        (models.V1PodStatus, "phase reason message conditions containerStatuses initContainerStatuses"),
        (models.V1ContainerState, "waiting terminated"),
        (models.V1ContainerStateTerminated, "exitCode reason message"),
        (models.V1PodSpec, "nodeName restartPolicy containers initContainers overhead"),
        (models.V1Secret, "data type"),
        (models.V1NodeSpec, "unschedulable taints"),
        (models.V1NodeStatus, "allocatable conditions"),
        (models.V1ResourceQuotaSpec, "hard scopes scopeSelector"),
        (models.V1ResourceQuotaStatus, "hard used"),
        (models.V1Status, "code reason message"),
    ],
)
def test_fields_are_those_of_the_api(model: Any, fields: str) -> None:
    """What the driver reads, in the words of the package ``kubernetes``, which is made of the API's own description."""
    assert set(fields.split()) <= set(model.attribute_map.values())
