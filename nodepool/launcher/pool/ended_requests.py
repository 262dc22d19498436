# SPDX-License-Identifier: Apache-2.0
"""Requests that this launcher fulfilled or failed, for metrics and traces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from nodepool.clock import wall_time
from nodepool.metrics import request_waits
from nodepool.model import states
from nodepool.plan.queue import MIN_READY_REQUESTOR
from nodepool.tracing import request_spans

if TYPE_CHECKING:
    from nodepool.model.request import NodeRequest

_ENDS: Final = frozenset({states.FULFILLED, states.FAILED})


def note(request: NodeRequest) -> None:
    """Note how long a request waited, if it has ended. Nobody waits for those of ``min-ready``. Does not block.

    :param request: as it was stored just now, or as it was before it was withdrawn.
    """
    if request.state in _ENDS:
        request_spans.ended(request, str(request.state))
    elif request.state == states.PENDING:
        # It was withdrawn while it was served.
        request_spans.ended(request, "cancelled")
    if request.state in _ENDS and request.created_time is not None and request.requestor != MIN_READY_REQUESTOR:
        request_waits.report(request.node_types, str(request.state), wall_time() - request.created_time)
