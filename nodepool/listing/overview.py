# SPDX-License-Identifier: Apache-2.0
"""``nodepool status``: a sentence, what needs attention, and how much room there is (reference/commands 2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from nodepool.listing import table, times
from nodepool.listing.pools import used_of
from nodepool.listing.table import BLANK, Column, Paragraph, Report, Table
from nodepool.listing.times import printable
from nodepool.model import states
from nodepool.model.event import short
from nodepool.plan.attention import problems
from nodepool.plan.explain import LONG_SECONDS, long_waits
from nodepool.plan.pool_summary import limiting, summarize
from nodepool.quick_dataclass import dataclass

if TYPE_CHECKING:
    from nodepool.model.status import LauncherStatus
    from nodepool.plan.attention import Registered, StatusProblem
    from nodepool.plan.explain import LongWait
    from nodepool.plan.observed import Observed
    from nodepool.plan.pool_summary import PoolSummary

#: Groups of waiting requests that the sentence tells.
MAX_GROUPS: Final = 3
#: Characters of a cause in the sentence.
MAX_CAUSE: Final = 80
#: States of nodes that have a column of their own.
_STATES: Final = (states.READY, states.IN_USE, states.BUILDING, states.DELETING, states.HOLD)


@dataclass(frozen=True)
class Overview:
    """Everything that ``nodepool status`` shows.

    :param now: seconds since the epoch.
    """

    sentence: str
    problems: Sequence[StatusProblem]
    waits: Sequence[LongWait]
    capacity: Table
    now: float


def overview(seen: Observed, launchers: Sequence[LauncherStatus], registered: Sequence[Registered]) -> Overview:
    """Everything about one moment, for the command and the page.

    :param launchers: their status records. ``registered``: all launchers.
    """
    pools = summarize(seen.statuses)
    found = problems(pools, launchers, registered, seen)
    waits = long_waits(seen)
    told = sentence(waits, found, len(seen.waiting))
    return Overview(told, found, waits, capacity_table(pools, seen.node_index.counts), seen.now)


def sentence(waits: Sequence[LongWait], found: Sequence[StatusProblem], waiting: int) -> str:
    """The first line: which requests wait too long and for what, or that none does.

    :param waiting: how many wait at all.
    """
    minutes = short(LONG_SECONDS)
    total = sum(wait.count for wait in waits)
    if not total:
        told = f"No request waits longer than {minutes} ({waiting} {'waits' if waiting == 1 else 'wait'} now)"
        count = len(found)
        attention = "1 thing needs" if count == 1 else f"{count} things need"
        return f"{told}; {attention} attention." if count else f"All is well. {told}."
    parts = [f"{wait.count} for {','.join(wait.labels)}{_because(wait)}" for wait in waits[:MAX_GROUPS]]
    more = sum(wait.count for wait in waits[MAX_GROUPS:])
    if more:
        parts.append(f"{more} for others")
    requests_wait = "request waits" if total == 1 else "requests wait"
    return f"{total} {requests_wait} longer than {minutes}: {', '.join(parts)}."


def _because(wait: LongWait) -> str:
    where = f"{wait.cause.pool}: " if wait.cause.pool else ""
    text = wait.cause.text
    # Long ones are told in full below, or by "explain".
    return f" ({where}{text if len(text) <= MAX_CAUSE else f'{text[:MAX_CAUSE]}...'})"


def problem_line(problem: StatusProblem, now: float, *, command: bool = True) -> Paragraph:
    """A problem in one line.

    :param command: name the command that shows more.
    """
    parts = [""]
    if problem.since:
        parts.append(f"since {times.since(now)(problem.since)}")
    if problem.next is not None:
        # Maintenance has an end, all else is tried again.
        word = "ends" if problem.kind == "maintenance" else "next try"
        parts.append(f"{word} {times.until(now)(problem.next)}")
    if problem.command and command:
        parts.append(f"see: nodepool {problem.command}")
    return Paragraph(
        [("- ", ""), (printable(problem.text), table.problem(problem.kind)), (printable("; ".join(parts)), "")]
    )


def capacity_table(pools: Sequence[PoolSummary], nodes: Mapping[tuple[str | None, str | None, str], int]) -> Table:
    """What each pool has, and which of its limits is used most.

    :param nodes: how many there are, by provider, pool and state.
    """
    columns = (
        Column("Pool", "pool"),
        Column("State", "state", style=table.state),
        *(Column(state.capitalize(), state.replace("-", "_")) for state in _STATES),
        Column("Waiting", "waiting"),
        Column("Most used", "limiting"),
    )
    rows: list[list[Any]] = []
    for pool in pools:
        scarce = limiting(pool.limits)
        rows.append(
            [
                *(pool.name, pool.state, *(nodes.get((pool.provider, pool.pool, state), 0) for state in _STATES)),
                *(pool.waiting, None if scarce is None else used_of(scarce)),
            ]
        )
    return Table(columns, rows)


def as_report(overview: Overview) -> Report:
    """The overview for people."""
    style = table.BAD if overview.waits else table.WAITING if overview.problems else table.GOOD
    parts: list[Paragraph | Table] = [Paragraph([(printable(overview.sentence), style)])]
    if overview.problems:
        parts += [BLANK, Paragraph([("Needs attention:", table.HEADING)])]
        parts += [problem_line(problem, overview.now) for problem in overview.problems]
    if overview.capacity.rows:
        parts += [BLANK, Paragraph([("Capacity:", table.HEADING)]), overview.capacity]
    return Report(parts, as_object(overview))


def as_object(overview: Overview) -> dict[str, Any]:
    """The overview for programs."""
    keys = [column.key for column in overview.capacity.columns]
    return {
        "sentence": overview.sentence,
        "waiting": [
            {
                "labels": list(wait.labels),
                "count": wait.count,
                "oldest": wait.oldest,
                "pool": wait.cause.pool or None,
                "code": wait.cause.code or None,
                "text": wait.cause.text,
                "requests": list(wait.ids[:100]),
            }
            for wait in overview.waits
        ],
        "problems": [
            {
                "kind": problem.kind,
                "text": problem.text,
                "since": problem.since,
                "next": problem.next,
                "command": problem.command or None,
            }
            for problem in overview.problems
        ],
        "capacity": [dict(zip(keys, row, strict=True)) for row in overview.capacity.rows],
    }
