# SPDX-License-Identifier: Apache-2.0
"""`BrokenLabels`: labels that a provider cannot serve, and why (rule Q-14)."""

from __future__ import annotations

from nodepool.clock import wall_time
from nodepool.model.pool_status import LabelStatus
from nodepool.model.reasons import ReasonCode


class BrokenLabels:
    """Any thread may call. Each change is one operation on a dictionary."""

    def __init__(self) -> None:
        self._causes: dict[str, LabelStatus] = {}

    def add(self, label: str, error: BaseException) -> bool:
        """A label turned out to be broken. Returns whether that is news.

        :param error: the cause, and what mends it.
        """
        text = str(error)
        before = self._causes.get(label)
        if before is None or before.text != text:
            since = wall_time() if before is None else before.since
            self._causes[label] = LabelStatus(ReasonCode.LABEL_BROKEN.value, text, since)
        return before is None

    def discard(self, label: str) -> bool:
        """A label works. Returns whether that is news."""
        return self._causes.pop(label, None) is not None

    def causes(self) -> dict[str, LabelStatus]:
        """Label -> why it is broken, and since when."""
        return dict(self._causes)
