# SPDX-License-Identifier: Apache-2.0
"""Properties of the decisions about limits, launches and clouds that fail."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from nodepool.driver.statemachine.cloud import StateMachineQuota
from nodepool.exceptions import LaunchError
from nodepool.model.node import Node, QuotaInformation
from nodepool.plan import config_diff, launch
from nodepool.plan.retries import PROBE, CircuitBreaker
from tests.model.budget import budget


class _Look(StateMachineQuota):
    """The second look of one launcher at the limit of a pool, with what it sees of the nodes."""

    def __init__(self, limit: int, seen: list[Node]) -> None:
        super().__init__()
        self.provider = SimpleNamespace(name="one", pools={})  # type: ignore[assignment]
        self.zk = SimpleNamespace(cache=None, nodeIterator=lambda: iter(seen))  # type: ignore[assignment]
        self.calls = SimpleNamespace(unanswered_creations=list)  # type: ignore[assignment]
        self._pool: Any = SimpleNamespace(name="main", max_servers=limit, ignore_provider_quota=True)
        self._used = QuotaInformation(instances=len(seen))

    def _tally_of(self, zk: Any) -> Any:
        return SimpleNamespace(used=lambda _: (self._used, []))

    def goes_on(self, node: Node) -> bool:
        return self.hasPlace(self._pool, node)


def _node(number: int) -> Node:
    node = Node("small")
    node.id = f"{number:010d}"
    node.provider, node.pool, node.resources = "one", "main", {"instances": 1}
    return node


@given(there=st.integers(0, 6), limit=st.integers(1, 6), rivals=st.integers(1, 6), data=st.data())
@budget(120)
def test_of_rivals_with_stale_views_those_with_room_go_on_and_no_others(
    there: int, limit: int, rivals: int, data: st.DataObject
) -> None:
    """Each stored its node first; all that was stored before it is seen, of what came later perhaps nothing (Q-3)."""
    nodes = [_node(number) for number in range(there + rivals)]
    going = []
    for number in data.draw(st.permutations(range(there, there + rivals))):
        later = data.draw(st.lists(st.sampled_from(nodes), unique_by=id)) if nodes else []
        seen = [*nodes[: number + 1], *(node for node in later if node.id > nodes[number].id)]  # type: ignore[operator]
        if _Look(limit, seen).goes_on(nodes[number]):
            going.append(number)
    assert sorted(going) == list(range(there, min(limit, there + rivals)))


@given(
    questions=st.lists(
        st.tuples(st.sampled_from(("allow", "refuse")), st.floats(0, 5), st.integers(0, 8)), min_size=1, max_size=40
    )
)
@budget(100)
def test_a_ceiling_lets_pass_what_was_taken_before_and_one_probe_in_a_while(
    questions: list[tuple[str, float, int]],
) -> None:
    """L-7: below the ceiling always; above it at most once in the pause, and never never again."""
    one, now, probes = launch.LearnedLimit(), 0.0, []
    for kind, pause, nodes in questions:
        now += pause
        if kind == "refuse":
            one.refused(now, nodes)
            assert one.nodes == nodes
            continue
        if one.allows(now, nodes) and nodes >= one.nodes:
            probes.append(now)
    gaps = [later - earlier for earlier, later in itertools.pairwise(probes)]
    assert all(gap >= launch.PROBE.first_seconds for gap in gaps)
    assert one.allows(now + launch.PROBE.longest_seconds + 1, one.nodes)


@given(kind=st.sampled_from(launch.Failure), retries=st.integers(1, 6), away=st.booleans())
@budget(100)
def test_attempts_of_a_launch_end(kind: launch.Failure, retries: int, away: bool) -> None:
    """L-4, L-6: never more attempts than configured; with what is the request's own fault it fails."""
    attempt = 1
    while isinstance(decision := launch.after_failure(kind, attempt, retries, circuit_open=away), launch.Retry):
        assert 0 < decision.delay_seconds <= launch.RETRY.longest_seconds
        attempt += 1
        assert attempt <= retries
    if kind is launch.Failure.INSTANCE:
        assert isinstance(decision, launch.Fail)
        assert attempt == retries


#: Drivers may have more, with arguments of their own.
ERRORS = [error for error in LaunchError.__subclasses__() if error.__module__ == LaunchError.__module__]


@given(error=st.sampled_from([OSError, ValueError, RuntimeError, *ERRORS]))
@budget(50)
def test_every_error_has_a_kind_and_a_decision(error: type[Exception]) -> None:
    kind = launch.classify(error("x"))
    assert launch.after_failure(kind, 1, 1, circuit_open=False)
    assert not (launch.answer_was_lost(kind) and not launch.may_have_made_an_instance(kind))


@given(events=st.lists(st.tuples(st.booleans(), st.floats(0, 20)), max_size=60))
@budget(100)
def test_a_cloud_that_answers_never_rests_and_every_rest_has_a_probe(events: list[tuple[bool, float]]) -> None:
    one, now = CircuitBreaker(), 0.0
    for works, pause in events:
        now += pause
        if works:
            one.worked()
            assert not one.is_open
            assert one.probe_due(now) is None
        else:
            one.failed(now, "away")
        due = one.probe_due(now)
        assert (due is not None) == one.is_open
        assert due is None or 0 <= due <= PROBE.longest_seconds


NAMES = st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 2))


@given(old=NAMES, new=NAMES)
@budget(100)
def test_each_provider_is_added_removed_changed_or_kept(old: dict[str, int], new: dict[str, int]) -> None:
    """G-4 to G-6."""
    changes = dict(config_diff.differences(old, new))
    for name in old.keys() | new.keys():
        what = "removed" if name not in new else "added" if name not in old else "changed"
        assert changes.pop(name, None) == (None if old.get(name) == new.get(name) else what)
    assert not changes
