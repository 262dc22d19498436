# SPDX-License-Identifier: Apache-2.0
"""CA-3 to CA-5: what becomes of images that are worse than the one in use, and of others, by many seeds."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable

import pytest

from nodepool.model.image import ImageUpload, Promotion
from nodepool.plan.promotion import CANARY, CHECK, Arms, Counts, Evidence, Verdict, judge, likelihood_ratio

SEEDS = 110
#: A launch each so many seconds; a tenth of them are of the candidate.
PACE_SECONDS = 5.0
#: More nodes of a candidate are not waited for.
MOST = 1200


def tried(seed: int, candidate: float, control: float, min_nodes: int, outage: bool) -> tuple[Verdict, int]:
    """Launches until there is a decision: what it is, and how many were of the candidate.

    :param candidate: part of its nodes that fail. ``control``: of those of the image in use.
    :param outage: in each second hour nine of ten nodes fail, whatever their image.
    """
    chance, promotion = random.Random(seed), Promotion(min_nodes=min_nodes)
    launched, failed, now = [0, 0], [0, 0], 0.0
    while launched[0] < MOST:
        now += PACE_SECONDS
        arm = int(chance.random() >= promotion.canary)
        rate = max((candidate, control)[arm], 0.9 if outage and now % 7200 < 3600 else 0.0)
        bad = chance.random() < rate
        launched[arm] += 1
        failed[arm] += bad
        if bad or (arm == 0 and now >= promotion.seconds):
            arms = Arms(*(Counts(launched[arm], failed[arm]) for arm in (0, 1)))
            verdict = judge(promotion, Evidence(step=CANARY, launchers={"one": arms}), now)
            if verdict.promoted is not None:
                return verdict, launched[0]
    return Verdict(None, "no decision"), MOST


@pytest.mark.parametrize(
    ("candidate", "control", "min_nodes", "rolled_back", "most_nodes"),
    [
        # Failures of 30 % of the boots, with an old image that never fails, and with one that does now and then.
        (0.30, 0.00, 20, 0.99, 30),
        (0.30, 0.05, 60, 0.99, 65),
        # 5 points more than the old one.
        (0.05, 0.00, 150, 0.99, 170),
        (0.06, 0.01, 250, 0.97, 320),
        (0.10, 0.05, 400, 0.90, 800),
        # Dies in use, whatever else.
        (1.00, 0.05, 20, 1.00, 8),
    ],
)
def test_worse_image(candidate: float, control: float, min_nodes: int, rolled_back: float, most_nodes: int) -> None:
    """CA-5: rolled back in at least this part of the cases, 95 % of them within so many nodes of it (ADR 40)."""
    found = [tried(seed, candidate, control, min_nodes, outage=False) for seed in range(SEEDS)]
    nodes = sorted(count for verdict, count in found if verdict.promoted is False)
    assert len(nodes) >= rolled_back * SEEDS
    assert nodes[int(0.95 * len(nodes))] <= most_nodes


@pytest.mark.parametrize(
    ("rate", "outage"), [(0.0, False), (0.01, False), (0.05, False), (0.3, False), (1.0, False), (0.05, True)]
)
def test_image_that_is_no_worse(rate: float, outage: bool) -> None:
    """CA-4, CA-5: below 1 % is rolled back, also with a bad old image and with a cloud that fails; most are used."""
    found = [tried(seed, rate, rate, 20, outage) for seed in range(SEEDS)]
    outcomes = [verdict.promoted for verdict, _ in found]
    assert outcomes.count(False) <= 0.01 * SEEDS
    assert outcomes.count(True) >= 0.97 * SEEDS


def bad(**counts: int) -> Counts:
    return Counts(**{"launched": 30, **counts})


@pytest.mark.parametrize(
    ("evidence", "now", "promoted", "text"),
    [
        (Evidence(step=CHECK), 1e9, None, "its check runs"),
        (Evidence(step=CHECK, failure="exit code 3"), 0, False, "its check failed: exit code 3"),
        (
            Evidence(),
            7200,
            None,
            "0 of 0 nodes failed. With the upload in use 0 of 0 nodes failed. Missing: 20 ",
        ),
        (Evidence(launchers={"a": Arms(bad())}), 7100, None, "Missing: 1 min of its time"),
        (Evidence(launchers={"a": Arms(bad())}), 7200, True, "0 of 30 nodes failed (0.0 %); ready after 0 s. With"),
        # What several launchers have counted, in any way in which a node fails.
        (
            Evidence(launchers={"a": Arms(bad(failed=2, unreachable=1)), "b": Arms(bad(early=1, held=3), bad())}),
            0,
            False,
            "6 of 60 nodes failed (10.0 %): 1 unreachable, 1 given back early, 3 held; ready after 0 s. With",
        ),
        (Evidence(launchers={"a": Arms(bad(failed=2), bad(launched=270))}), 7200, None, "Missing: certainty"),
    ],
)
def test_judgement(evidence: Evidence, now: float, promoted: bool | None, text: str) -> None:
    """CA-4, CA-5: what decides, and what is said."""
    verdict = judge(Promotion(), evidence, now)
    assert (verdict.promoted, text in verdict.text) == (promoted, True), verdict.text


def test_records() -> None:
    """A record is read as it was written; what several launchers counted is summed."""
    evidence = Evidence("/in/use", CANARY, 5.0, "", {"a": Arms(bad(failed=1), bad()), "b": Arms(bad(), bad(held=2))})
    assert Evidence.of_record(evidence.to_dict()) == evidence
    assert (evidence.total.candidate, evidence.total.control.bad) == (bad(launched=60, failed=1), 2)


@pytest.mark.parametrize("more", [lambda c, o: (c + 1, o), lambda c, o: (c, o + 1)])
def test_likelihood_ratio(more: Callable[[int, int], tuple[int, int]]) -> None:
    """It grows with failures of the candidate, falls with others, and no number is too large."""
    grows = more(0, 0)[0] > 0
    pairs = ((0, 0), (3, 5), (40, 200), (10**7, 3), (3, 10**7))
    for pair, most in itertools.product(pairs, (1.5, 1e30)):
        before, after = likelihood_ratio(*pair, 0.1, most), likelihood_ratio(*more(*pair), 0.1, most)
        assert before <= after if grows else before >= after


@pytest.mark.parametrize("now", [50.0, 150.0])
def test_time_of_promotion(now: float) -> None:
    """CA-4: the newest from then on, also if the clock of who promotes is behind that of the builder."""
    current, candidate = (ImageUpload("debian", build, "cloud", "0000000001") for build in ("b1", "b2"))
    current.state_time = 100.0
    candidate.become_candidate(Promotion(), current)
    assert (candidate.state_time or 0.0) < 100.0
    # It waited while the one before it was tried and promoted.
    current.state_time = 120.0
    candidate.end_candidacy("0 of 20 nodes failed", now, current, promoted=True)
    assert candidate.to_dict(now)["state_time"] == pytest.approx(max(now, 120.001))
