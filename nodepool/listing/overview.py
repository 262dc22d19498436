# SPDX-License-Identifier: Apache-2.0
"""The answers of commands as text (reference/commands 2).

First ``nodepool status``: a sentence, what needs attention, and how much room there is. Then ``nodepool explain``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from nodepool.listing import table
from nodepool.listing.pools import used_of
from nodepool.listing.table import BLANK, WHOLE, Column, Paragraph, Report, Table, printable, table_of
from nodepool.model import states
from nodepool.model.event import amount, short
from nodepool.model.status import Component
from nodepool.plan import explained
from nodepool.plan.attention import StatusProblem, problems
from nodepool.plan.explain import LONG_SECONDS, LongWait, long_waits
from nodepool.plan.observed import Observed
from nodepool.plan.pool_summary import PoolSummary, free, limiting, summarize

#: Groups of waiting requests that the sentence tells.
MAX_GROUPS: Final = 3
#: Characters of a cause in the sentence.
MAX_CAUSE: Final = 80
#: States of nodes that have a column of their own, the most important one first.
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


def overview(seen: Observed, registered: Sequence[Component]) -> Overview:
    """Everything about one moment, for the command and the page.

    :param registered: entries of all launchers.
    """
    pools = summarize(seen.statuses)
    found = problems(pools, registered, seen)
    waits = long_waits(seen)
    first = sentence(waits, found, len(seen.waiting), seen.spare)
    return Overview(first, found, waits, capacity_table(pools, seen.node_index.counts), seen.now)


def sentence(waits: Sequence[LongWait], found: Sequence[StatusProblem], waiting: int, spare: int = 0) -> str:
    """The first line: which requests wait too long and for what, or that none does.

    :param waiting: how many wait at all. ``spare``: how many others are for ``min-ready``.
    """
    minutes = short(LONG_SECONDS)
    total = sum(wait.count for wait in waits)
    if not total:
        others = f", {spare} more for min-ready" if spare else ""
        none = f"No request waits longer than {minutes} ({waiting} {'waits' if waiting == 1 else 'wait'} now{others})"
        count = len(found)
        attention = "1 thing needs" if count == 1 else f"{count} things need"
        return f"{none}; {attention} attention." if count else f"All is well. {none}."
    parts = [f"{wait.count} for {','.join(wait.labels)}{_because(wait)}" for wait in waits[:MAX_GROUPS]]
    more = sum(wait.count for wait in waits[MAX_GROUPS:])
    if more:
        parts.append(f"{more} for others")
    requests_wait = "request waits" if total == 1 else "requests wait"
    return f"{total} {requests_wait} longer than {minutes}: {', '.join(parts)}."


def _because(wait: LongWait) -> str:
    where = f"{wait.cause.pool}: " if wait.cause.pool else ""
    text = wait.cause.text
    # Long ones stand in full below, or in the answer of "explain".
    return f" ({where}{text if len(text) <= MAX_CAUSE else f'{text[:MAX_CAUSE]}...'})"


def problem_line(problem: StatusProblem, now: float, *, command: bool = True) -> Paragraph:
    """A problem in one line.

    :param command: name the command that shows more.
    """
    parts = [""]
    if problem.since:
        parts.append(f"since {table.since(now)(problem.since)}")
    if problem.next is not None:
        # Maintenance has an end, all else is tried again.
        word = "ends" if problem.kind == "maintenance" else "next try"
        parts.append(f"{word} {table.until(now)(problem.next)}")
    if problem.command and command:
        parts.append(f"see: nodepool {problem.command}")
    return Paragraph(
        [("- ", ""), (printable(problem.text), table.problem(problem.kind)), (printable("; ".join(parts)), "")]
    )


def capacity_table(pools: Sequence[PoolSummary], nodes: Mapping[tuple[str | None, str | None, str], int]) -> Table:
    """What each pool has, and which of its limits is used most.

    :param nodes: how many there are, by provider, pool and state.
    """

    def count(state: str) -> Callable[[PoolSummary], int]:
        return lambda pool: nodes.get((pool.provider, pool.pool, state), 0)

    def most_used(pool: PoolSummary) -> str | None:
        return None if (scarce := limiting(pool.limits)) is None else used_of(scarce)

    columns = (
        Column("Pool", "pool", of="name", least=WHOLE),
        Column("State", "state", style=table.state),
        *(
            Column(state.capitalize(), state.replace("-", "_"), of=count(state), priority=priority)
            for priority, state in enumerate(_STATES, 2)
        ),
        Column("Waiting", "waiting"),
        Column("Most used", "limiting", of=most_used, priority=1),
    )
    return table_of(columns, pools)


def as_report(overview: Overview) -> Report:
    """The overview for people."""
    style = table.BAD if overview.waits else table.WAITING if overview.problems else table.GOOD
    parts: list[Paragraph | Table] = [Paragraph([(printable(overview.sentence), style)])]
    if overview.problems:
        parts += [BLANK, Paragraph([("Needs attention:", table.HEADING)])]
        parts += [problem_line(problem, overview.now) for problem in overview.problems]
    if overview.capacity.rows:
        parts += [BLANK, Paragraph([("Capacity:", table.HEADING)]), overview.capacity]
    return parts


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
            {key: getattr(problem, key) for key in ("kind", "text", "since", "next")}
            | {"command": problem.command or None}
            for problem in overview.problems
        ],
        "capacity": [dict(zip(keys, row, strict=True)) for row in overview.capacity.rows],
    }


# The answer of ``nodepool explain`` as text (reference/commands 2).


def explanation_text(answer: explained.Explained, now: float) -> str:
    """An answer for people, without a line break at the end.

    :param now: seconds since the epoch, for ages.
    """
    end = "" if answer.text.endswith(("?", ".")) else "."
    kind = answer.what if isinstance(answer, explained.ExplainedThing) else answer.kind
    lines = [f"{kind.capitalize()} {answer.id} {answer.text}{end}"]
    values = {name: ", ".join(map(str, value)) for name, value in facts(answer, now).items()}
    lines += _indented(_aligned(list(values.items())))
    if isinstance(answer, explained.ExplainedRequest):
        lines += _section("Pools", _verdicts(answer.pools, now))
    elif isinstance(answer, explained.ExplainedLabel):
        lines += _section("Pools", _label_pools(answer, now))
        lines += _section("Waiting", _waiting(answer.waiting, now))
    elif isinstance(answer, explained.ExplainedProvider):
        lines += _section("Pools", _summaries(answer.pools, now))
        lines += _section("Launchers that tell no status", answer.silent)
        lines += _section("Waiting", _waiting(answer.waiting, now))
    elif isinstance(answer, explained.ExplainedThing):
        for title, rows in (("Providers", answer.places), ("Nodes", answer.nodes)):
            found = [(one.get("provider") or one["id"], _since(one["since"], now), one["text"]) for one in rows]
            lines += _section(title, _aligned(found))
        lines += _section("Waiting", _waiting(answer.waiting, now))
    lines += _section("History", _moments(getattr(answer, "history", ())))
    lines += _section("To do", getattr(answer, "remedies", ()))
    lines += _section("End of its console", (getattr(answer, "console", None) or "").splitlines())
    # Names and texts come from other programs: no escape sequence of theirs may reach the terminal.
    return "\n".join(printable(line).rstrip() for line in lines)


def _section(title: str, lines: Iterable[str]) -> list[str]:
    found = _indented(lines)
    return ["", f"{title}:", *found] if found else []


def _indented(lines: Iterable[str]) -> list[str]:
    return [f"  {line}" for line in lines]


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    return ["  ".join(line) for line in table.padded(rows)]


def facts(answer: explained.Explained, now: float) -> dict[str, Sequence[object]]:
    """Name -> values that the sentence does not have; those without a value are left out.

    :param now: seconds since the epoch.
    """
    facts: dict[str, object] = {"State": answer.state}
    if isinstance(answer, explained.ExplainedRequest):
        facts |= {"Labels": answer.labels, "Age": _age(answer.age_seconds), "Reason": answer.code}
        facts |= {"Only in": answer.provider, "Tenant": answer.tenant, "Job": answer.job, "Pipeline": answer.pipeline}
        facts |= {"Requestor": answer.requestor, "Event": answer.event_id, "Nodes": answer.nodes}
    elif isinstance(answer, explained.ExplainedNode) and answer.provider:
        facts |= {"Labels": answer.labels, "Age": _age(answer.age_seconds)}
        facts |= {"In this state": _age(answer.state_seconds), "Pool": f"{answer.provider}/{answer.pool or '-'}"}
        facts |= {"Server": answer.external_id, "Request": answer.request, "Tenant": answer.tenant, "Job": answer.job}
        facts |= {"Event": answer.event_id, "Launcher": answer.launcher, "Locked": "yes" if answer.locked else "no"}
        until = None if answer.held_until is None else table.with_zone(answer.held_until)
        facts |= {"Held by": answer.held_by, "Held until": until}
    elif isinstance(answer, explained.ExplainedLabel):
        facts |= {"Requests": answer.requests, "Oldest": None if answer.oldest is None else _age(now - answer.oldest)}
    elif isinstance(answer, explained.ExplainedThing):
        facts |= {"Since": None if answer.since is None else table.with_zone(answer.since)}
        facts |= {name.capitalize(): value for name, value in answer.facts.items()}
    elif isinstance(answer, explained.ExplainedProvider):
        facts |= {"Nodes": [f"{count} {state}" for state, count in answer.nodes.items()]}
        facts |= {"Maintenance": "; ".join(answer.maintenance)}
    lists = {name: value if isinstance(value, (list, tuple)) else [value] for name, value in facts.items()}
    return {name: values for name, values in lists.items() if any(value not in (None, "") for value in values)}


def _age(seconds: float | None) -> str | None:
    return None if seconds is None else short(seconds)


def _since(since: float | None, now: float) -> str:
    return f"for {short(now - since)}" if since else ""


def _verdicts(pools: Sequence[explained.PoolVerdict], now: float) -> list[str]:
    return _aligned(
        [(one.pool, one.verdict, one.code, _since(one.since, now), ", ".join(one.launchers), one.text) for one in pools]
    )


def _label_pools(answer: explained.ExplainedLabel, now: float) -> list[str]:
    rows = []
    for pool in answer.pools:
        nodes = ", ".join(f"{count} {state}" for state, count in pool.nodes.items())
        why = f"{pool.code}: {pool.text}" if pool.code else ""
        rows.append((pool.pool, f"{pool.free} free", nodes, _since(pool.since, now), why))
    return _aligned(rows)


def _waiting(groups: Sequence[explained.WaitingGroup], now: float) -> list[str]:
    return _aligned(
        [
            (one.pool, str(one.count), ", ".join(one.labels), one.tenant or "", _since(one.oldest, now), one.text)
            for one in groups
        ]
    )


def _summaries(pools: Sequence[PoolSummary], now: float) -> Iterator[str]:
    yield from _aligned(
        [(one.name, one.state, _since(one.since, now), ", ".join(one.launchers), one.text or "") for one in pools]
    )
    for pool in pools:
        for limit in pool.limits:
            left = free(limit)
            if left is not None and limit.limit is not None:
                used, most, others, left_over = (
                    amount(one, limit.resource) for one in (limit.used, limit.limit, limit.others, left)
                )
                also = f", others {others}" if limit.others else ""
                yield f"{pool.name}: {limit.resource} of {limit.scope}: {used} of {most}{also}, {left_over} free"
        launches = pool.launches
        if launches.running or launches.ok_15m or launches.failed_15m:
            counts = f"{launches.running} running, in 15 minutes {launches.ok_15m} ready, {launches.failed_15m} failed"
            yield f"{pool.name}: launches: {counts}"
        if launches.last_error is not None:
            yield f"{pool.name}: last failure, {short(now - launches.last_error.at)} ago: {launches.last_error.text}"


def _moments(history: Sequence[explained.Moment]) -> list[str]:
    return _aligned([(table.date_and_time(one.at), one.what, one.code or "", one.text) for one in history])
