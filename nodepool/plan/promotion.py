# SPDX-License-Identifier: Apache-2.0
"""When is a new image as good as the one in use? (rules CA)

First what is counted of a candidate and of the upload in use, then the sequential test on it, then the decision.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Final

from nodepool.model.event import short
from nodepool.model.image import CANDIDATE_LABEL, CHECK_BY_LABEL, ImageUpload, Promotion
from nodepool.model.record import TypedRecord
from nodepool.plan.launch import Failure

#: Steps of a candidate.
CHECK: Final = "check"
CANARY: Final = "canary"
#: A node that is given back so soon after its job began has failed, in seconds.
EARLY_SECONDS: Final = 60.0
#: Failures that may be those of the image. The others say nothing about it.
OF_THE_IMAGE: Final = frozenset({Failure.INSTANCE, Failure.CONFIGURATION, Failure.SETUP, Failure.UNKNOWN})


@dataclass(frozen=True)
class Counts(TypedRecord):
    """What became of the nodes of one upload.

    :param launched: first attempts that ended, well or by a failure that may be the image's.
    :param failed: of these, those that failed. ``unreachable``: of these, those in the key scan or the ready-check.
    :param early: ready nodes that were given back within `EARLY_SECONDS` of use. ``held``: that people held.
    :param ready_seconds: of all that became ready, from the begin of the attempt.
    """

    launched: int = 0
    failed: int = 0
    unreachable: int = 0
    early: int = 0
    held: int = 0
    ready_seconds: float = 0.0

    def __add__(self, other: Counts) -> Counts:
        return Counts(**{one.name: getattr(self, one.name) + getattr(other, one.name) for one in fields(Counts)})

    @property
    def bad(self) -> int:
        """Nodes that failed in any way."""
        return self.failed + self.early + self.held

    @property
    def text(self) -> str:
        parts = {"unreachable": self.unreachable, "given back early": self.early, "held": self.held}
        of = ", ".join(f"{count} {name}" for name, count in parts.items() if count)
        share = f" ({100 * self.bad / self.launched:.1f} %)" if self.launched else ""
        ready = self.launched - self.failed
        mean = f"; ready after {short(self.ready_seconds / ready)}" if ready > 0 else ""
        return f"{self.bad} of {self.launched} nodes failed{share}{f': {of}' if of else ''}{mean}"


@dataclass(frozen=True)
class Arms(TypedRecord):
    """What one launcher has counted. ``control``: the upload in use."""

    candidate: Counts = Counts()
    control: Counts = Counts()

    def __add__(self, other: Arms) -> Arms:
        return Arms(self.candidate + other.candidate, self.control + other.control)


@dataclass(frozen=True)
class Evidence(TypedRecord):
    """The record of a candidate (reference/zookeeper).

    :param control: path of the upload in use that it is compared with.
    :param step: `CHECK` or `CANARY`. ``since``: seconds since the epoch.
    :param failure: why the check failed; empty = it did not.
    :param launchers: process -> what it has counted, since it started. Each writes its own entry only.
    """

    control: str = ""
    step: str = CANARY
    since: float = 0.0
    failure: str = ""
    launchers: Mapping[str, Arms] = field(default_factory=dict)

    @property
    def total(self) -> Arms:
        return _sum(self.launchers.values())


def _sum(arms: Iterable[Arms]) -> Arms:
    total = Arms()
    for one in arms:
        total = total + one
    return total


# The test. Each launch takes the candidate with the same chance, whatever else is so. So if the candidate is no worse,
# the next failure is one of the candidate with just that chance, also while the cloud is in trouble. How much more
# likely the failures are if it is worse is a martingale then, of which Ville's inequality bounds the greatest value:
# it may be looked at after each failure (Wald 1945; Robbins 1970; Lindon and Malek 2022). ADR 40 has the figures.

#: So many times more likely the failures must be with a worse image before it is rolled back. It is the inverse of the
#: chance that one that is no worse is.
BOUND: Final = 200.0
#: "Worse" is this many times ``max-failure-ratio``, each as likely: one alone would be slow to find the others.
_RATIOS: Final = (1.0, 2.0, 4.0, 8.0)


def likelihood_ratio(candidate: int, control: int, share: float, max_failure_ratio: float) -> float:
    """How many times more likely failures are with a worse image than with one that is no worse.

    :param candidate: failures of the candidate. ``control``: of the upload in use.
    :param share: part of the launches that took the candidate, below 1.
    """
    total = 0.0
    for ratio in _RATIOS:
        odds = ratio * max_failure_ratio
        # Its chance is ``share * odds`` then, that of the other ``1 - share``, both in parts of their sum.
        exponent = candidate * math.log(odds) - (candidate + control) * math.log(share * odds + 1 - share)
        total += math.exp(min(exponent, 700.0))
    return total / len(_RATIOS)


@dataclass(frozen=True)
class Verdict:
    """What follows from the evidence.

    :param promoted: None = nothing yet.
    :param text: why, with the numbers; or what is missing.
    """

    promoted: bool | None
    text: str


#: A candidate that waits for so many times ``for`` needs an operator.
LATE: Final = 7


def judge(promotion: Promotion, evidence: Evidence, now: float) -> Verdict:
    """:param now: seconds since the epoch."""
    if evidence.failure:
        return Verdict(False, f"its check failed: {evidence.failure}")
    if evidence.step == CHECK:
        by_label = promotion.check == CHECK_BY_LABEL
        return Verdict(None, f"no job has used a node with LABEL{CANDIDATE_LABEL}" if by_label else "its check runs")
    total = evidence.total
    mine, theirs, ratio = total.candidate, total.control, promotion.max_failure_ratio
    likelihood = likelihood_ratio(mine.bad, theirs.bad, promotion.canary, ratio)
    numbers = f"{mine.text}. With the upload in use {theirs.text}"
    if likelihood >= BOUND:
        return Verdict(False, numbers)
    missing = []
    if (left := evidence.since + promotion.seconds - now) > 0:
        missing.append(f"{short(left)} of its time")
    if mine.launched < promotion.min_nodes:
        missing.append(f"{promotion.min_nodes - mine.launched} launches of it (min-nodes)")
    # Compared by products: one of the numbers may be 0.
    if likelihood > 1 or mine.bad * theirs.launched > ratio * theirs.bad * mine.launched:
        missing.append(f"certainty: it fails more often than {ratio:g} times as the other, which may be chance")
    if missing:
        return Verdict(None, f"{numbers}. Missing: {', '.join(missing)}")
    return Verdict(True, numbers)


def is_late(promotion: Promotion, evidence: Evidence, now: float) -> bool:
    """Does a candidate wait for so long that an operator should decide? :param now: seconds since the epoch."""
    return now > evidence.since + LATE * promotion.seconds


@dataclass(frozen=True)
class Trial:
    """Which upload a launch is to use, while a new one is tried.

    :param about: paths of the candidate and of the upload in use.
    :param is_candidate: else it is the one in use.
    :param is_check: it is the launch of the check: all attempts use it.
    """

    upload: ImageUpload
    about: tuple[str, str]
    is_candidate: bool
    is_check: bool = False
