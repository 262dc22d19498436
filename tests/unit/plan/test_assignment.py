# SPDX-License-Identifier: Apache-2.0
"""nodepool.plan.triage: may a pool serve a kind of request? (rules A)"""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodepool.model.reasons import Reason, ReasonCode
from nodepool.plan.queue import RequestKind
from nodepool.plan.triage import Consider, Decline, Leave, PoolInfo, declined_state, screen

ME = PoolInfo("me", "cloud", frozenset({"small", "large"}), 100, paused=False)


def pool(id: str, *labels: str, **changes: Any) -> PoolInfo:
    return dataclasses.replace(ME, id=id, labels=frozenset(labels or ME.labels), **changes)


def kind(*labels: str, provider: str | None = None, declined_by: tuple[str, ...] = ()) -> RequestKind:
    return RequestKind(labels, provider, frozenset(declined_by), None, True, False)


def test_pool_that_can_serve() -> None:
    assert screen(kind("small", "small"), ME, [ME]) == Consider()


def test_empty_request() -> None:
    """A-20: fulfilled with no nodes."""
    assert screen(kind(), ME, [ME]) == Consider()


def test_declined_before() -> None:
    """A-2"""
    assert isinstance(screen(kind("small", declined_by=("me",)), ME, [ME]), Leave)
    assert isinstance(screen(kind("gone", declined_by=("me",)), ME, [ME]), Leave), "it is declined once only"


# -- wanted provider


def test_yields_to_the_wanted_provider() -> None:
    other = pool("other", provider_name="wanted")
    assert isinstance(screen(kind("small", provider="wanted"), ME, [ME, other]), Leave)


@pytest.mark.parametrize(
    "registered",
    [
        [],
        [pool("other", provider_name="another")],
        [pool("other", "small", provider_name="wanted")],
    ],
)
def test_wish_is_ignored_when_nobody_can_grant_it(registered: list[PoolInfo]) -> None:
    """A-3: no pool of that provider, or none that supports all labels."""
    assert screen(kind("small", "large", provider="wanted"), ME, [ME, *registered]) == Consider()


def test_wish_is_ignored_after_a_refusal() -> None:
    other = pool("other", provider_name="wanted")
    assert screen(kind("small", provider="wanted", declined_by=("other",)), ME, [ME, other]) == Consider()


def test_paused_pool_of_the_wanted_provider_is_waited_for() -> None:
    """A-3 knows no pause: nodes of one build belong together."""
    other = pool("other", provider_name="wanted", paused=True)
    assert isinstance(screen(kind("small", provider="wanted"), ME, [ME, other]), Leave)


def test_wanted_provider_serves() -> None:
    others = [pool("other"), pool("third", provider_name="third")]
    assert screen(kind("small", provider="cloud"), ME, [ME, *others]) == Consider()


def test_wanted_provider_with_the_worse_priority_serves() -> None:
    """A-3 and A-4 together: each would leave the request to the other, for ever."""
    better = pool("better", provider_name="third", priority=1)
    wish = kind("small", provider="cloud")
    assert screen(wish, ME, [ME, better]) == Consider()
    assert isinstance(screen(wish, better, [ME, better]), Leave)


def test_priority_inside_the_wanted_provider_counts() -> None:
    assert isinstance(screen(kind("small", provider="cloud"), ME, [ME, pool("better", priority=1)]), Leave)


# -- priority


def test_yields_to_a_better_priority() -> None:
    assert isinstance(screen(kind("small"), ME, [ME, pool("better", priority=99)]), Leave)


@pytest.mark.parametrize(
    "better",
    [
        pool("better", priority=99, paused=True),
        pool("better", "large", priority=99),
        pool("better", priority=100),
        pool("better", priority=101),
        pool("declined", priority=1),
    ],
)
def test_does_not_yield(better: PoolInfo) -> None:
    """A-4: paused, cannot serve it, not better, or has declined."""
    assert screen(kind("small", declined_by=("declined",)), ME, [ME, better]) == Consider()


# -- labels that are not here


def test_leaves_what_another_pool_has() -> None:
    """A-5"""
    assert isinstance(screen(kind("gpu"), ME, [ME, pool("other", "gpu", priority=200, paused=True)]), Leave)


@pytest.mark.parametrize(
    "registered",
    [[], [pool("other", "arm")], [pool("declined", "gpu", "small")], [pool("half", "gpu")]],
)
def test_declines_what_nobody_has(registered: list[PoolInfo]) -> None:
    """A-6: nobody, or nobody who supports them all and has not declined."""
    verdict = screen(kind("gpu", "small", declined_by=("declined",)), ME, [ME, *registered])
    assert verdict == Decline(Reason(ReasonCode.LABEL_UNKNOWN, "label(s) gpu not available in this pool"))


# --


@pytest.mark.parametrize(
    ("declined_by", "registered", "state"),
    [
        (["a"], ["a"], "failed"),
        (["a"], ["a", "b"], "requested"),
        (["a", "b"], ["a", "b"], "failed"),
        (["a", "gone"], ["a"], "failed"),
        (["a", "gone"], ["a", "b"], "requested"),
    ],
)
def test_state_after_a_refusal(declined_by: list[str], registered: list[str], state: str) -> None:
    assert declined_state(["small"], declined_by, registered) == state


@pytest.mark.parametrize(
    ("absent", "state"),
    [
        (pool("away"), "requested"),
        (pool("away", "large"), "failed"),
        (pool("declined"), "failed"),
    ],
)
def test_a_pool_that_may_come_back_is_waited_for(absent: PoolInfo, state: str) -> None:
    """A-15: its launcher is being restarted, perhaps; what it cannot serve, or has declined, need not wait."""
    assert declined_state(["small"], ["me", "declined"], ["me"], [absent]) == state


# -- nobody waits for ever


LABELS = ("small", "large", "gpu")
POOLS = st.lists(
    st.builds(
        PoolInfo,
        id=st.sampled_from("abcd"),
        provider_name=st.sampled_from(["cloud", "other"]),
        labels=st.frozensets(st.sampled_from(LABELS)),
        priority=st.sampled_from([1, 100]),
        paused=st.booleans(),
    ),
    min_size=1,
    unique_by=lambda info: info.id,
)


@given(
    POOLS,
    st.lists(st.sampled_from(LABELS), max_size=3),
    st.sampled_from([None, "cloud", "other", "gone"]),
    st.frozensets(st.sampled_from("abcd")),
)
def test_some_pool_acts(
    pools: list[PoolInfo], labels: list[str], provider: str | None, declined: frozenset[str]
) -> None:
    """Among pools that have not declined at least one takes the request or declines it."""
    request = kind(*labels, provider=provider, declined_by=tuple(declined))
    left = [info for info in pools if info.id not in declined]
    verdicts = [screen(request, info, pools) for info in left]
    assert not left or not all(isinstance(verdict, Leave) for verdict in verdicts)


def test_label_of_a_pool_that_went_a_moment_ago() -> None:
    """A-15: its launcher is being restarted: nobody declines for it, unless it had declined itself."""
    absent = [pool("restarted", "gpu")]
    assert isinstance(screen(kind("gpu"), ME, [ME], absent), Leave)
    assert isinstance(screen(kind("gpu", declined_by=("restarted",)), ME, [ME], absent), Decline)
    assert isinstance(screen(kind("gpu", "huge"), ME, [ME], absent), Decline)
    assert screen(kind("small"), ME, [ME], absent) == Consider()
