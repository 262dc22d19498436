# SPDX-License-Identifier: Apache-2.0
"""`Explanations`: why requests wait in the queue, one answer for each kind, and why the last ones were declined."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from nodepool.clock import wall_time
from nodepool.model.reasons import NEXT_PASS, Reason
from nodepool.plan.reminders import TOLD
from nodepool.plan.request_stage import Stage

if TYPE_CHECKING:
    from nodepool.plan.queue import RequestKind

#: Requests that the pool declined and whose reason it remembers.
MAX_DECLINED: Final = 1000


class Explanation(NamedTuple):
    """Why a request is where it is.

    :param since: seconds since the epoch.
    """

    request_id: str
    stage: Stage
    reason: Reason
    since: float


class WaitingKind(NamedTuple):
    """Why the requests of a kind wait.

    :param since: when it was said for the first time, seconds since the epoch.
    """

    reason: Reason
    since: float


class Explanations:
    """Owned by the pool worker's thread. Any thread may read. What it reads may be one pass old."""

    def __init__(self) -> None:
        self._kinds: dict[RequestKind, WaitingKind] = {}
        #: Of the pass before.
        self._said: dict[RequestKind, WaitingKind] = {}
        #: Has something begun to wait, or to wait for something else, since `told` was asked?
        self.fresh = False
        self._declined: dict[str, Explanation] = {}

    def begin_pass(self) -> None:
        """Forget why the kinds wait; all are judged again."""
        self._said, self._kinds = self._kinds, {}

    def waits(self, kind: RequestKind, reason: Reason) -> None:
        """The requests of a kind wait."""
        before = self._said.get(kind)
        if before is not None and before.reason == reason:
            self._kinds[kind] = before
        else:
            self.fresh = self.fresh or reason.code in TOLD
            same = before is not None and before.reason.code is reason.code
            self._kinds[kind] = WaitingKind(reason, before.since if before is not None and same else wall_time())

    def news(self) -> Iterator[tuple[RequestKind, Reason]]:
        """Kinds that wait for another reason than in the pass before."""
        for kind, waiting in self._kinds.items():
            if self._said.get(kind) is not waiting:
                yield kind, waiting.reason

    def told(self) -> dict[RequestKind, Reason]:
        """Kinds that wait for something that is worth a line in the log, as the last pass judged them."""
        self.fresh = False
        return {kind: waiting.reason for kind, waiting in self._kinds.items() if waiting.reason.code in TOLD}

    def of_kind(self, kind: RequestKind) -> WaitingKind:
        """Why the requests of a kind wait; the next pass looks at one that was not judged yet."""
        return self._kinds.get(kind) or self._said.get(kind) or WaitingKind(NEXT_PASS, wall_time())

    def declined(self, request_id: str, reason: Reason) -> None:
        """The pool declined a request."""
        self._declined.pop(request_id, None)
        while len(self._declined) >= MAX_DECLINED:
            del self._declined[next(iter(self._declined))]
        self._declined[request_id] = Explanation(request_id, Stage.DONE, reason, wall_time())

    def of_declined(self, request_id: str) -> Explanation | None:
        """Why the pool declined a request; None = it did not, or that is long ago."""
        return self._declined.get(request_id)

    def last_declined(self) -> list[Explanation]:
        """The last requests that the pool declined, oldest first."""
        return list(self._declined.values())

    def forget(self, request_id: str) -> None:
        """A request does not exist any more."""
        self._declined.pop(request_id, None)
