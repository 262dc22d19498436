# SPDX-License-Identifier: Apache-2.0
"""The lines that a pool logs when it declines a request (rule J-3). Filters match how they begin."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from nodepool.model import states
from nodepool.model.request_origin import described, origin_of
from nodepool.plan.decline_summary import why_failed
from nodepool.tracing import request_spans

if TYPE_CHECKING:
    from nodepool.logconfig import AnnotatedLogger
    from nodepool.model.reasons import Reason
    from nodepool.model.request import NodeRequest


def log_declined(
    log: AnnotatedLogger,
    request: NodeRequest,
    reason: Reason,
    pool: str,
    others: Callable[[], Mapping[str, Reason | None]],
) -> None:
    """Log, and record as a span, that a pool declines a request, and that the request fails if it does.

    :param log: with the ids of the request.
    :param request: as it is written.
    :param pool: such as ``cloud-1/main``.
    :param others: what the other pools said; asked if the request fails.
    """
    request_spans.declined(request, reason, pool)
    extra = {"code": reason.code.value, **origin_of(request)}
    log.info("Declining node request: %s (%s)", reason.text, described(request), extra=extra)
    if request.state == states.FAILED:
        why = why_failed({**others(), pool: reason})
        extra["code"] = why.code.value
        log.info("Failing node request: every pool declined it: %s (%s)", why.text, described(request), extra=extra)
