# SPDX-License-Identifier: Apache-2.0
"""nodepool.plan.queue: waiting requests in order, in buckets (rule A-1)."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from nodepool.model.request import NodeRequest
from nodepool.plan.queue import MIN_READY_REQUESTOR, RequestKind, RequestQueue


def make(id: str, *labels: str, **fields: Any) -> NodeRequest:
    request = NodeRequest(id)
    request.node_types = list(labels or ("small",))
    for name, value in fields.items():
        setattr(request, name, value)
    return request


def test_kind_holds_what_a_pool_judges_by() -> None:
    first = RequestKind.of(make("200-1", "a", "b"))
    assert RequestKind.of(make("100-2", "b", "a", relative_priority=4, event_id="e")) == first
    changes: list[dict[str, Any]] = [
        *({"provider": "p"}, {"declined_by": ["x"]}, {"tenant_name": "t"}, {"reuse": False}),
        *({"requestor": MIN_READY_REQUESTOR}, {"node_types": ["a", "a"]}),
    ]
    assert all(RequestKind.of(make("200-1", "a", "b", **change)) != first for change in changes)


def test_marks_of_kinds() -> None:
    """E-1: what readers of a status do not see otherwise; the same in each process."""
    kinds: list[dict[str, Any]] = [
        {},
        {"declined_by": ["x"]},
        {"declined_by": ["x", "y"]},
        {"reuse": False},
        {"requestor": MIN_READY_REQUESTOR},
    ]
    marks = [RequestKind.of(make("200-1", **fields)).mark for fields in kinds]
    assert len(set(marks)) == len(kinds)
    assert marks[0] == RequestKind.of(make("100-7")).mark == "9b9cecbe"


def test_order_in_a_bucket() -> None:
    """A-1: PPP as text, relative priority, sequence."""
    queue = RequestQueue()
    for id, relative in (("300-1", 0), ("100-9", 3), ("100-8", 3), ("100-7", 11), ("099-5", 9)):
        queue.put(make(id, relative_priority=relative))
    [bucket] = queue.buckets()
    assert list(bucket) == ["099-5", "100-8", "100-9", "100-7", "300-1"]
    assert (bucket.head, bucket.head_key, len(bucket)) == ("099-5", ("099", 9, "5"), 5)


def test_changed_request_moves() -> None:
    queue = RequestQueue()
    queue.put(make("200-1"))
    queue.put(make("200-2"))
    queue.put(make("200-1", relative_priority=5))
    assert [list(bucket) for bucket in queue.buckets()] == [["200-2", "200-1"]]
    queue.put(make("200-1", declined_by=["pool"]))
    assert sorted(list(bucket) for bucket in queue.buckets()) == [["200-1"], ["200-2"]]
    assert len(queue) == 2


def test_removing_while_iterating() -> None:
    """A pass takes requests out of the bucket that it walks through."""
    queue = RequestQueue()
    for number in range(5):
        queue.put(make(f"200-{number}"))
    [bucket] = queue.buckets()
    for request_id in bucket:
        queue.discard(request_id)
    assert len(queue) == 0
    assert queue.buckets() == []


class QueueMachine(RuleBasedStateMachine):
    """The queue against a plain dictionary that is sorted anew each time."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = RequestQueue()
        self.model: dict[str, NodeRequest] = {}

    @rule(
        number=st.integers(0, 6),
        priority=st.sampled_from(["100", "200"]),
        relative=st.integers(-1, 2),
        labels=st.lists(st.sampled_from("ab"), max_size=2),
        declined=st.sampled_from([[], ["p"]]),
    )
    def put(self, number: int, priority: str, relative: int, labels: list[str], declined: list[str]) -> None:
        request = make(f"{priority}-{number}", relative_priority=relative, declined_by=declined)
        request.node_types = labels
        self.queue.put(request)
        self.model[request.key] = request

    @rule(number=st.integers(0, 6), priority=st.sampled_from(["100", "200"]))
    def discard(self, number: int, priority: str) -> None:
        self.queue.discard(f"{priority}-{number}")
        self.model.pop(f"{priority}-{number}", None)

    @rule()
    def clear(self) -> None:
        self.queue.clear()
        self.model.clear()

    @invariant()
    def same_as_the_model(self) -> None:
        expected: dict[RequestKind, list[str]] = {}
        for request_id, request in sorted(self.model.items(), key=lambda entry: entry[1].order_key):
            expected.setdefault(RequestKind.of(request), []).append(request_id)
        assert {bucket.kind: list(bucket) for bucket in self.queue.buckets()} == expected
        assert len(self.queue) == len(self.model)
        assert all(request_id in self.queue for request_id in self.model)

    @invariant()
    def oldest_of_each_kind(self) -> None:
        """W-5: the one with the lowest sequence, whatever its priority."""
        for bucket in self.queue.buckets():
            assert self.queue.oldest(bucket.kind) == min(bucket, key=lambda key: (key.partition("-")[2], key))


def test_oldest_of_a_kind_that_is_gone() -> None:
    """W-5"""
    queue = RequestQueue()
    queue.put(make("100-1"))
    (bucket,) = queue.buckets()
    queue.clear()
    assert queue.oldest(bucket.kind) is None
    bucket.remove(make("100-1").order_key, "100-1")
    assert bucket.oldest() is None


TestQueueMachine = QueueMachine.TestCase
TestQueueMachine.settings = settings(max_examples=40)
