# SPDX-License-Identifier: Apache-2.0
"""The pod of one launch."""

from __future__ import annotations

import logging

import pytest

from nodepool.driver.kubernetes.create import MENDING_SECONDS, PodJudge
from nodepool.driver.kubernetes.records import PodView, Verdict
from nodepool.exceptions import LaunchStatusException
from nodepool.logconfig import ContextLogger

LOG = ContextLogger(logging.getLogger("test"))


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def view(verdict: Verdict, terminating: bool = False) -> PodView:
    return PodView("p", "main-7", "u", {}, terminating, verdict)


def test_runs() -> None:
    """KU-9: first there is no pod, then it waits, then it runs."""
    judge = PodJudge("where", LOG)
    assert not judge.look(None)
    assert not judge.look(view(Verdict(problem="Unschedulable: no room")))
    assert judge.waits_for == "Unschedulable: no room"
    assert judge.look(view(Verdict(ready=True)))
    assert judge.waits_for == ""


def test_fatal() -> None:
    """KU-10: it ends the launch at once, with the cluster's words."""
    with pytest.raises(LaunchStatusException, match="ErrImagePull: not found"):
        PodJudge("where", LOG).look(view(Verdict(problem="ErrImagePull: not found", fatal=True)))


def test_what_may_mend_itself() -> None:
    """KU-10: it has some seconds; a recovery begins them anew."""
    clock = Clock()
    judge = PodJudge("where", LOG, clock)
    trouble = view(Verdict(problem="CreateContainerConfigError", later=True))
    assert not judge.look(trouble)
    assert judge.next_look(60.0) == MENDING_SECONDS
    clock.now += MENDING_SECONDS - 1
    assert not judge.look(view(Verdict()))
    assert not judge.look(trouble)
    clock.now += MENDING_SECONDS
    with pytest.raises(LaunchStatusException, match="CreateContainerConfigError"):
        judge.look(trouble)


@pytest.mark.parametrize("pod", [None, view(Verdict(ready=True), terminating=True)])
def test_deleted_by_somebody(pod: PodView | None) -> None:
    """KU-10: a pod that was there and is not any more will not come back."""
    judge = PodJudge("where", LOG)
    judge.look(view(Verdict()))
    with pytest.raises(LaunchStatusException, match="somebody else"):
        judge.look(pod)
