# SPDX-License-Identifier: Apache-2.0
"""What the API of a cluster, and what stands before it, really answers: a row for each form, with its source.

The API conventions (kubernetes/community) say what may be null or absent, ``client-go`` shows what clients do.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes.client import models

from nodepool.driver.framework.cloud_errors import (
    CloudAway,
    CloudRefused,
    CloudSetup,
    LoginRefused,
)
from nodepool.driver.framework.rate import SPREAD_SECONDS
from nodepool.driver.kubernetes.client import KubeClient, create, delete, error_of, exists
from nodepool.driver.kubernetes.cloud import REFUSED_SECONDS, Listener, Watch
from nodepool.driver.kubernetes.connection import ClusterConnection
from nodepool.exceptions import LaunchError
from nodepool.plan.launch import classify
from tests.support.manual_clock import ManualClock
from tests.support.recording_server import RecordingServer, Sent
from tests.support.tables import driver_table, rows
from tests.unit.driver.kubernetes.stand_in import StandIn

POD = {"metadata": {"name": "a", "namespace": "n", "uid": "1"}}


def raw(status: int, body: Any = b"", *headers: str) -> bytes:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(content)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + content


def refused(status: int, reason: str, message: str, **more: Any) -> bytes:
    return raw(status, {"kind": "Status", "code": status, "reason": reason, "message": message, **more})


class PatientClient(KubeClient):
    """No time passes but that for which it waits."""

    def __init__(self, connection: ClusterConnection) -> None:
        self.clock = ManualClock().rules()
        super().__init__(connection)

    def _sleep(self, seconds: float) -> None:
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


def answer_of(row: Any) -> bytes:
    """An error, a body as it is, or a page with the names of its objects."""
    if isinstance(row, str):
        return raw(200, row.encode())
    if "reason" in row:
        return refused(**row)
    if isinstance(row.get("status"), int):
        body = row.get("body", "")
        return raw(row["status"], body.encode() if isinstance(body, str) else body)
    if row.keys() & {"items", "kind"}:
        return raw(200, row)
    found = [{"metadata": {"name": name}} for name in row.pop("names", ())]
    return raw(200, {"kind": "PodList", "metadata": row, "items": found})


@pytest.mark.parametrize(("answers", "names", "version"), driver_table("kubernetes", "lists"))
def test_lists(cluster: Cluster, answers: list[Any], names: str | None, version: str) -> None:
    """KU-10: what is a list, and what is none."""
    cluster.answers(*map(answer_of, answers))
    if names is None:
        with pytest.raises(CloudAway):
            cluster.client.list("/api/v1/pods")
        return
    found, seen = cluster.client.list("/api/v1/pods")
    assert ("".join(pod["metadata"]["name"] for pod in found), seen) == (names, version)
    assert len(cluster.sent) == len(answers)
    if len(answers) == 3:
        assert cluster.sent[-1].first == "GET /api/v1/pods HTTP/1.1"


@pytest.mark.parametrize(("answer", "kind"), driver_table("kubernetes", "deletions"))
def test_deletions(cluster: Cluster, answer: dict[str, Any], kind: type[Exception] | None) -> None:
    cluster.answers(answer_of(answer))
    if kind is None:
        delete(cluster.client, "/api/v1/namespaces/n", "1")
        # 201 without a body: what was made is looked at, as one that was there.
        cluster.answers(raw(201))
        assert create(cluster.client, "/api/v1/namespaces", {}) is None
        return
    with pytest.raises(kind) as caught:
        delete(cluster.client, "/api/v1/namespaces/n", None)
    assert type(caught.value) is kind


def test_cluster_that_fails(cluster: Cluster) -> None:
    """A read is the matter of the caller, too: three calls that hang would hide for long that the cluster is away."""
    cluster.answers(raw(500), raw(200, POD))
    with pytest.raises(CloudAway):
        cluster.client.get("/api/v1/namespaces/n/pods/a")
    assert len(cluster.sent) == 1


@rows(__file__, "put_off")
def test_calls_that_are_put_off(
    cluster: Cluster, status: int, body: Any, header: str, pause: float, again: bool
) -> None:
    """CM-5: no call begins before its time. 429 is the matter of the client, any other error that of the caller."""
    begun = cluster.clock.now
    cluster.answers(raw(status, body, *[header] * bool(header)), raw(201, POD))
    if not again:
        with pytest.raises(CloudAway):
            create(cluster.client, "/api/v1/namespaces/n/pods", {})
    assert create(cluster.client, "/api/v1/namespaces/n/pods", {}) == POD
    assert len(cluster.times) == 2
    assert begun + pause <= cluster.times[1] <= begun + pause + SPREAD_SECONDS


# -- what errors mean --


def error(status: int, reason: str, message: str) -> Exception:
    body = {"kind": "Status", "reason": reason, "message": message, "code": status}
    return error_of("Provider p: POST /x", status, json.dumps(body).encode())


@rows(__file__, "errors")
def test_errors(status: int, reason: str, message: str, kind: str, follows: str | None) -> None:
    """KU-2, KU-10: quotas and limits wait; rights are named with a remedy; what never works ends the label."""
    found = error(status, reason, message)
    assert type(found).__name__ == kind
    assert message in str(found)
    assert follows in (None, classify(found).name)
    if type(found) is CloudAway:
        assert found.maybe_done is (status != 429), "what was surely not done is not looked for"
    assert (isinstance(found, CloudRefused) and exists(found)) is (reason == "AlreadyExists")
    # A proxy's page is one line.
    assert "Bad Gateway here" in str(error_of("head", 502, b"<html>Bad\nGateway here"))


@pytest.mark.parametrize(("model", "fields"), driver_table("kubernetes", "fields"))
def test_fields_are_those_of_the_api(model: str, fields: str) -> None:
    """What the driver reads, in the words of the package ``kubernetes``, which is made of the API's own description."""
    assert set(fields.split()) <= set(getattr(models, model).attribute_map.values())


# -- watches --


class Heard(Listener):
    """:ivar stop: called after a change."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.stop: Callable[[], None] = lambda: None

    def listed(self, kind: str, found: list[Any], started: float) -> None:
        self.events.append(" ".join(["listed", *(item["metadata"]["name"] for item in found)]))

    def changed(self, kind: str, found: dict[str, Any], gone: bool) -> None:
        self.events.append(f"{'gone' if gone else 'changed'} {found['metadata']['name']}")
        self.stop()

    def heard(self, kind: str) -> None:
        self.events.append("heard")

    def refused(self, kind: str, error: LaunchError | None) -> None:
        self.events.append("allowed" if error is None else "refused")


LIST = raw(200, {"items": [], "metadata": {"resourceVersion": "5"}})


@rows(__file__, "events")
def test_events(cluster: Cluster, events: list[str], changes: list[str], again: bool) -> None:
    """KU-10: no event ends the thread, and none makes an error of ours."""
    heard = Heard()
    watch = Watch(cluster.client, "pod", "/api/v1/pods", "", heard)
    cluster.answers(LIST, raw(200, "".join(f"{line}\n" for line in events).encode()), LIST)
    watch.turn()
    assert heard.events == ["listed", *changes]
    watch.turn()
    assert heard.events.count("listed") == 1 + again


@rows(__file__, "watches")
def test_watches(lists: list[Any], streams: list[Any], pauses: str, heard: Any, versions: Any) -> None:
    """KU-3, KU-10: where watches resume, when they list again, and after which pause ("<": longer than the last)."""
    errors = {"away": CloudAway("no"), "forbidden": CloudSetup("no", 403)}
    expired = {"type": "ERROR", "object": {"code": 410, "reason": "Expired", "message": "too old"}}

    def event(row: Any) -> Any:
        if isinstance(row, str):
            return expired if row == "expired" else errors[row]
        return {"type": row[0], "object": {"metadata": {"name": row[1], "resourceVersion": row[2]}}}

    client, listener = StandIn(), Heard()
    client.lists = [
        errors[found] if isinstance(found, str) else ([{"metadata": {"name": name}} for name in found], str(5 + number))
        for number, found in enumerate(lists)
    ]
    client.streams = [[event(row) for row in stream] for stream in streams]
    watch = Watch(client, "pod", "/api/v1/pods", "a=b", listener)
    last = 0.0
    for wanted in pauses:
        pause = watch.turn()
        assert pause == {"0": 0.0, "R": REFUSED_SECONDS}[wanted] if wanted != "<" else pause > last
        last = pause
    assert heard in (None, listener.events)
    assert versions in (None, client.versions)


# -- how to reach a cluster --


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A kubeconfig, its authority and its token."""
    (tmp_path / "ca.crt").write_text("authority")
    (tmp_path / "token").write_text("first")
    config: dict[str, Any] = {
        "clusters": [
            {"name": "c", "cluster": {"server": "https://c.example:6443", "certificate-authority": "ca.crt"}},
            {"name": "open", "cluster": {"server": "https://o.example", "insecure-skip-tls-verify": True}},
        ],
        "users": [{"name": "u", "user": {"tokenFile": "token"}}],
        "contexts": [
            {"name": "one", "context": {"cluster": "c", "user": "u"}},
            {"name": "open", "context": {"cluster": "open", "user": "u"}},
        ],
        "current-context": "one",
    }
    (tmp_path / "config").write_text(json.dumps(config))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    return tmp_path


def test_context(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """KU-1, KU-8: host, token and authority of a context; an error names file and context, and what to do."""
    access = ClusterConnection("p", "one").access()
    assert (access.host, access.bearer_token(), access.skip_tls) == ("https://c.example:6443", "first", False)
    assert access.authority() == base64.b64encode(b"authority").decode()
    assert ClusterConnection("p", "open").access().skip_tls
    assert ClusterConnection("p", None).access().host == "https://c.example:6443"
    with pytest.raises(LoginRefused, match=r"context 'two': .*; correct context of the provider, or the kubeconfig$"):
        ClusterConnection("p", "two").access()
    monkeypatch.setenv("KUBECONFIG", str(directory / "none"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(LoginRefused, match=r"there is no kubeconfig at .*; write a kubeconfig, or set KUBECONFIG$"):
        ClusterConnection("p", None).access()
