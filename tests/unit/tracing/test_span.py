# SPDX-License-Identifier: Apache-2.0
"""Ids of traces and spans."""

from __future__ import annotations

from typing import Any

import pytest

from nodepool.model.request import NodeRequest
from nodepool.tracing.spans import SPAN_ID_BITS, TRACE_ID_BITS, derived_id, trace_of
from nodepool.zk import paths

#: As Zuul 14.3 writes it: whole numbers, that of the trace beyond 64 bits.
SPAN_INFO = {
    "name": "RequestNodes",
    "trace_id": 2**127 + 12345,
    "span_id": 2**63 + 7,
    "trace_flags": 1,
    "start_time": 1700000000_000000000,
    "parent": None,
}


def request(info: Any = None, **fields: Any) -> NodeRequest:
    data = {"state": "requested", "node_types": ["small"], "requestor_data": {"span_info": info}, "created_time": 5.0}
    return NodeRequest.from_dict({**data, **fields}, "200-0000000001")


def test_continues_the_trace_of_zuul() -> None:
    """TR-2."""
    trace = trace_of(request(SPAN_INFO))
    assert (trace.trace_id, trace.parent_id, trace.sampled) == (2**127 + 12345, 2**63 + 7, True)
    assert trace.text == f"{2**127 + 12345:032x}"


def test_not_sampled() -> None:
    """TR-2: whoever began the trace does not want it recorded."""
    assert not trace_of(request({**SPAN_INFO, "trace_flags": 0})).sampled


@pytest.mark.parametrize(
    "info",
    [
        None,
        "text",
        {},
        {**SPAN_INFO, "trace_id": 0},
        {**SPAN_INFO, "trace_id": True},
        {**SPAN_INFO, "trace_id": 2**128},
        {**SPAN_INFO, "trace_id": "1"},
        {**SPAN_INFO, "span_id": 2**64},
        {**SPAN_INFO, "span_id": -1},
        {**SPAN_INFO, "span_id": 1.5},
    ],
)
def test_a_trace_of_its_own(info: Any) -> None:
    """TR-2: the same one whoever computes it, and another one for each request."""
    one = trace_of(request(info))
    assert one == trace_of(request(info))
    assert one.parent_id == 0
    assert one != trace_of(request(info, created_time=6.0))


@pytest.mark.parametrize("data", [None, "text", [], 5])
def test_any_requestor_data(data: Any) -> None:
    assert trace_of(request(requestor_data=data)).parent_id == 0


def test_ids_fit() -> None:
    assert 0 < derived_id(SPAN_ID_BITS, "a", 1) < 2**64
    assert 0 < derived_id(TRACE_ID_BITS, "a", 1) < 2**128
    assert derived_id(SPAN_ID_BITS, "a", "b") != derived_id(SPAN_ID_BITS, "ab")
    assert derived_id(SPAN_ID_BITS, "\ud800") > 0


def test_records_with_such_numbers() -> None:
    """S-1: they are read and written as they were, although orjson knows no number beyond 64 bits."""
    data = request(SPAN_INFO).to_dict(10.0)
    again = paths.decode(paths.encode(data))
    assert again["requestor_data"]["span_info"] == SPAN_INFO
    assert NodeRequest.from_dict(again, "200-0000000001").to_dict(10.0) == data
