# SPDX-License-Identifier: Apache-2.0
"""Why a request failed (rule J-3)."""

from __future__ import annotations

from nodepool.model.reasons import IMAGE_MISSING, Reason, ReasonCode
from nodepool.plan.triage import MAX_REASONS, MAX_TEXT, why_failed

UNKNOWN = Reason(ReasonCode.LABEL_UNKNOWN, "label(s) gpu not available in this pool")
BROKEN = Reason(ReasonCode.LABEL_BROKEN, "label gpu cannot be served: no such flavor")


def test_what_tells_most_comes_first() -> None:
    """J-3."""
    assert why_failed({"lab/a": UNKNOWN, "cloud/main": BROKEN, "lab/b": UNKNOWN, "far/main": None}) == (
        Reason(
            ReasonCode.LABEL_BROKEN,
            "cloud/main: label gpu cannot be served: no such flavor; far/main: of another launcher, whose log says why",
        )
    )


def test_a_pool_without_the_label_is_a_cause_only_if_no_other_one_may_have_it() -> None:
    """J-3."""
    assert why_failed({"lab/a": UNKNOWN, "lab/b": UNKNOWN}) == Reason(
        ReasonCode.LABEL_UNKNOWN, "lab/a, lab/b: label(s) gpu not available in this pool"
    )
    found = why_failed({"lab/a": UNKNOWN, "far/main": None})
    assert found.text == "far/main: of another launcher, whose log says why"


def test_many_pools() -> None:
    """J-3: hundreds of pools are one line of bounded length."""
    assert why_failed({f"p{number}/m": IMAGE_MISSING for number in range(100)}).text == (
        "p0/m, p1/m, p2/m and 97 more: images are not available"
    )
    reasons = {f"p/{number}": Reason(ReasonCode.LAUNCH_FAILED, f"{number:03d}" + "x" * 1000) for number in range(100)}
    line = why_failed(reasons).text
    assert line.endswith("95 more reasons")
    assert len(line) < MAX_REASONS * (MAX_TEXT + 20)
