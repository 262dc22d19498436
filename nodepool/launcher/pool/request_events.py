# SPDX-License-Identifier: Apache-2.0
"""`RequestEvents`: events of requests that fail, or that a pool declines because something is wrong in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from nodepool.model import states
from nodepool.model.event import What
from nodepool.model.reasons import Reason, ReasonCode
from nodepool.plan.decline_summary import why_failed
from nodepool.plan.queue import MIN_READY_REQUESTOR

if TYPE_CHECKING:
    from nodepool.launcher.event_ring import EventRing
    from nodepool.model.request import NodeRequest

#: Each request is declined by all pools that do not have its labels: that is no event. These are.
TROUBLE: Final = frozenset(
    {
        ReasonCode.LABEL_BROKEN,
        ReasonCode.IMAGE_MISSING,
        ReasonCode.LAUNCH_FAILED,
        ReasonCode.DRIVER_ERROR,
        ReasonCode.QUOTA_TOO_SMALL,
    }
)


class RequestEvents:
    """For the pool worker's thread.

    :param ring: where they go.
    :param host: of the launcher. ``pool``: such as ``cloud-1/main``.
    :param others: why the other pools declined a request, by pool, see `PassContext.declines_of_others`.
    """

    def __init__(
        self, ring: EventRing, host: str, pool: str, others: Callable[[str], Mapping[str, Reason | None]]
    ) -> None:
        self._ring = ring
        self._actor = f"{host} {pool}"
        self._pool = pool
        self._others = others

    def declined(self, request: NodeRequest, reason: Reason) -> None:
        """The pool has declined a request. Does not block."""
        subject = f"request {request.id}"
        if request.state == states.FAILED:
            why = why_failed({**self._others(request.key), self._pool: reason})
            text = f"every pool declined it: {why.text}"
            self._ring.add(self._actor, subject, What.FAILED, text, why.code.value)
            if request.requestor == MIN_READY_REQUESTOR:
                # Nobody waits for such a request, and it is gone soon: the label tells of it.
                for label in request.node_types:
                    about = f"no more ready node of {label}: {text}"
                    self._ring.add(self._actor, f"label {label}", What.FAILED, about, why.code.value)
        elif reason.code in TROUBLE:
            self._ring.add(self._actor, subject, What.DECLINED, reason.text, reason.code.value)
