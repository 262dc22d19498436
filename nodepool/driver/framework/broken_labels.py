# SPDX-License-Identifier: Apache-2.0
"""`BrokenLabels`: labels that a provider cannot serve, and why (rule Q-14)."""

from __future__ import annotations

from typing import Final

from nodepool.clock import wall_time
from nodepool.model.pool_status import LabelStatus
from nodepool.model.reasons import ReasonCode

#: What is told of a label whose cause the driver does not tell.
UNKNOWN: Final = LabelStatus(ReasonCode.LABEL_BROKEN.value, "the driver says that it can never work here")


class BrokenLabels:
    """Any thread may call. Each change is one operation on a dictionary.

    :param code: of the reason, the same for all of them.
    """

    def __init__(self, code: ReasonCode = ReasonCode.LABEL_BROKEN) -> None:
        self._code = code
        self._causes: dict[str, LabelStatus] = {}

    def add(self, label: str, error: BaseException | str) -> bool:
        """A label turned out to be broken. Returns whether that is news.

        :param error: the cause, and what corrects it.
        """
        text = str(error)
        before = self._causes.get(label)
        if before is None or before.text != text:
            since = wall_time() if before is None else before.since
            self._causes[label] = LabelStatus(self._code.value, text, since)
        return before is None

    def discard(self, label: str) -> bool:
        """A label works. Returns whether that is news."""
        return self._causes.pop(label, None) is not None

    def causes(self) -> dict[str, LabelStatus]:
        """Label -> why it is broken, and since when."""
        return dict(self._causes)
