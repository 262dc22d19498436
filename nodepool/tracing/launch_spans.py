# SPDX-License-Identifier: Apache-2.0
"""Spans of launches: each attempt, and in it the boot and the scan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from nodepool.clock import wall_time
from nodepool.tracing import recorder
from nodepool.tracing.request_spans import request_span
from nodepool.tracing.span import trace_of

if TYPE_CHECKING:
    from nodepool.model.node import Node
    from nodepool.model.request import NodeRequest

LAUNCH: Final = "nodepool.launch"
BOOT: Final = "nodepool.boot"
SCAN: Final = "nodepool.scan"


def attempt_ended(request: NodeRequest, node: Node, provider: str, attempt: int, seconds: float, error: str) -> None:
    """An attempt to launch a node has ended just now. Does not block.

    :param attempt: from 1.
    :param seconds: how long it took.
    :param error: why it failed; empty = it did not.
    """
    if not recorder.enabled():
        return
    trace, now = trace_of(request), wall_time()
    recorder.record(
        trace,
        LAUNCH,
        (node.id, attempt),
        now - max(0.0, seconds),
        now,
        parent=request_span(request, trace),
        error=error,
        attributes={
            "nodepool.node": node.key,
            "nodepool.provider": provider,
            "nodepool.label": node.type[0] if node.type else "",
            "nodepool.attempt": attempt,
            "nodepool.external_id": str(node.external_id or ""),
        },
    )


def part_ended(name: str, request: NodeRequest, node: Node, attempt: int, seconds: float) -> None:
    """A part of an attempt has ended just now. Does not block.

    :param name: `BOOT` or `SCAN`.
    """
    if recorder.enabled():
        trace, now = trace_of(request), wall_time()
        parent = recorder.span_id_of(trace, LAUNCH, node.id, attempt)
        recorder.record(trace, name, (node.id, attempt), now - max(0.0, seconds), now, parent=parent)
