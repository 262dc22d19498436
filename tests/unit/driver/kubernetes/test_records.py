# SPDX-License-Identifier: Apache-2.0
"""Objects of nodes become one record each."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from nodepool.driver.kubernetes.records import PLACE, POD, NodeObjects, PodView, place_view, pod_view, token_view


def place(name: str, uid: str = "u", **more: Any) -> Any:
    return place_view({"metadata": {"name": name, "uid": uid, "labels": {"a": "b"}, **more}})


def pod(place_name: str) -> Any:
    return pod_view({"metadata": {"name": "p", "namespace": place_name, "uid": "p"}, "status": {"phase": "Running"}})


def token(place_name: str, text: str = "secret-text") -> Any:
    data = {"token": base64.b64encode(text.encode()).decode(), "ca.crt": "Y2E="}
    meta = {"name": "zuul-worker", "namespace": place_name, "uid": "s"}
    return token_view({"type": "kubernetes.io/service-account-token", "metadata": meta, "data": data})


def test_one_record() -> None:
    """KU-2: whatever is told first, a record is there with its namespace."""
    kept = NodeObjects()
    assert kept.put(pod("a-1")) is None
    record = kept.put(place("a-1"))
    assert record is not None
    assert record.pod is not None
    assert record.pod.verdict.ready
    record = kept.put(token("a-1"))
    assert record is not None
    assert record.token is not None
    assert record.token.token == "secret-text"


@pytest.mark.parametrize(
    ("uid", "phase", "reason", "problem"),
    [
        ("u", "Pending", "ImagePullBackOff", "container c: ErrImagePull: not found"),
        ("u", "Pending", "InvalidImageName", "container c: InvalidImageName"),
        ("u", "Running", "", ""),
        ("v", "Pending", "ImagePullBackOff", "container c: ImagePullBackOff"),
    ],
)
def test_pod_that_never_will_run(uid: str, phase: str, reason: str, problem: str) -> None:
    """KU-2: a launch that looks late finds why, unless the pod runs after all or is another one."""

    def told(uid: str, phase: str, **waiting: str) -> PodView:
        states = [{"name": "c", "state": {"waiting": waiting}}]
        meta = {"name": "p", "namespace": "a-1", "uid": uid}
        return pod_view({"metadata": meta, "status": {"phase": phase, "containerStatuses": states}})

    kept = NodeObjects()
    kept.put(place("a-1"))
    kept.put(told("u", "Pending", reason="ErrImagePull", message="not found"))
    later = told(uid, phase, reason=reason)
    record = kept.put(later)
    assert record is not None
    assert record.pod is not None
    assert (record.pod.verdict.problem, record.pod.verdict.ready) == (problem, phase == "Running")
    (listed,), _ = kept.replace(POD, [later], 0.0)
    assert listed == record


def test_tokens_are_not_shown() -> None:
    """KU-8: no log can show one by accident."""
    kept = NodeObjects()
    kept.put(place("a-1"))
    assert "secret-text" not in repr(kept.put(token("a-1")))


def test_other_secrets_are_left_out() -> None:
    """KU-2: only the one that was made for the token."""
    meta = {"name": "other", "namespace": "a-1"}
    assert token_view({"type": "Opaque", "metadata": meta}) is None


def test_namespace_of_the_same_name() -> None:
    """KU-10: a new namespace has nothing of the one before; the end of that one, told late, is not its end."""
    kept = NodeObjects()
    kept.put(place("a-1", "old"))
    kept.put(pod("a-1"))
    record = kept.put(place("a-1", "new"))
    assert record is not None
    assert record.pod is None
    assert kept.remove(place("a-1", "old")) is not None
    assert kept.remove(place("a-1", "new")) is None


def test_list_replaces() -> None:
    """KU-11: what a list lacks is gone."""
    kept = NodeObjects(lambda: 5.0)
    kept.put(place("a-1", "one"))
    kept.put(pod("a-1"))
    records, gone = kept.replace(PLACE, [place("a-2")], 10.0)
    assert [record.id for record in records] == ["a-2"]
    assert gone == {"a-1": "one"}
    record = kept.put(place("a-1", "one"))
    assert record is not None
    assert record.pod is None


def test_list_that_is_older_than_what_was_told() -> None:
    """KU-11: a list says nothing of a namespace that was told after the list began."""
    now = [5.0]
    kept = NodeObjects(lambda: now[0])
    kept.put(place("a-1"))
    now[0] = 15.0
    kept.put(place("a-2", "new"))
    kept.put(pod("a-2"))
    records, gone = kept.replace(PLACE, [place("a-2", "old")], 10.0)
    assert gone == {"a-1": "u"}
    (record,) = records
    assert (record.id, record.uid) == ("a-2", "new")
    assert record.pod is not None


def test_list_with_another_of_the_name() -> None:
    """KU-10: a namespace that a list has under a name of before has nothing of the one before."""
    kept = NodeObjects(lambda: 5.0)
    kept.put(place("a-1", "old"))
    kept.put(pod("a-1"))
    (record,), gone = kept.replace(PLACE, [place("a-1", "new")], 10.0)
    assert (record.uid, record.pod, gone) == ("new", None, {})


def test_status() -> None:
    """KU-11: a namespace that is being deleted says what holds it."""
    kept = NodeObjects()
    record = kept.put(place("a-1", deletionTimestamp="now", finalizers=["x/y"]))
    assert record is not None
    assert record.terminating
    assert record.status == "Terminating: finalizers x/y"
