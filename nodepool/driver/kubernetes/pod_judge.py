# SPDX-License-Identifier: Apache-2.0
"""`PodJudge`: follows the pod of one launch: says what keeps it, and ends the launch when it never will run."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from nodepool.clock import monotonic
from nodepool.driver.kubernetes.records import PodView
from nodepool.exceptions import LaunchStatusException

if TYPE_CHECKING:
    from nodepool.driver.statemachine.adapter import Log

#: How long to wait for what may mend itself in a moment.
MENDING_SECONDS: Final = 10.0


class PodJudge:
    """For one launch.

    :param where: whose launch it is, for texts.
    """

    def __init__(self, where: str, log: Log, clock: Callable[[], float] = monotonic) -> None:
        self._where = where
        self._log = log
        self._clock = clock
        self._uid: str | None = None
        self._told = ""
        #: Since when the pod is in trouble that ends the launch if it lasts.
        self._trouble_since: float | None = None
        #: What keeps the pod, in the cluster's words.
        self.waits_for = ""

    def worth_a_look(self, pod: PodView | None) -> bool:
        """Is what was told of the pod worth a step?"""
        if pod is None:
            return self._uid is not None
        return pod.terminating or pod.verdict.ready or bool(pod.verdict.problem)

    def look(self, pod: PodView | None) -> bool:
        """Does the pod run?

        :raises LaunchStatusException: it never will.
        """
        if pod is None:
            if self._uid is not None:
                raise LaunchStatusException(f"{self._where}: the pod was deleted by somebody else")
            return False
        self._uid = pod.uid
        verdict = pod.verdict
        if pod.terminating:
            raise LaunchStatusException(f"{self._where}: the pod is being deleted by somebody else")
        self._trouble_since = (self._trouble_since or self._clock()) if verdict.later else None
        if verdict.fatal or self._has_lasted():
            raise LaunchStatusException(f"{self._where}: the pod cannot run: {verdict.problem}")
        self.waits_for = verdict.problem
        if verdict.problem and verdict.problem != self._told:
            self._told = verdict.problem
            self._log.warning("The pod cannot run yet: %s", verdict.problem)
        return verdict.ready

    def next_look(self, otherwise: float | None) -> float | None:
        """When to look again though nothing was told, in seconds."""
        if self._trouble_since is None:
            return otherwise
        left = max(0.0, self._trouble_since + MENDING_SECONDS - self._clock())
        return left if otherwise is None else min(left, otherwise)

    def _has_lasted(self) -> bool:
        return self._trouble_since is not None and self._clock() - self._trouble_since >= MENDING_SECONDS
