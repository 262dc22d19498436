# SPDX-License-Identifier: Apache-2.0
"""The answer of ``nodepool explain`` as text (reference/commands 2)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from nodepool.listing import times
from nodepool.listing.pools import amount
from nodepool.model.event import short
from nodepool.plan.explained import (
    Explained,
    ExplainedLabel,
    ExplainedNode,
    ExplainedProvider,
    ExplainedRequest,
    Moment,
    PoolVerdict,
    WaitingGroup,
)
from nodepool.plan.pool_summary import PoolSummary, free


def explanation_text(answer: Explained, now: float) -> str:
    """An answer for people, without a line break at the end.

    :param now: seconds since the epoch, for ages.
    """
    end = "" if answer.text.endswith(("?", ".")) else "."
    lines = [f"{answer.kind.capitalize()} {answer.id} {answer.text}{end}"]
    lines += _indented(_facts(answer, now))
    if isinstance(answer, ExplainedRequest):
        lines += _section("Pools", _verdicts(answer.pools, now))
    elif isinstance(answer, ExplainedLabel):
        lines += _section("Pools", _label_pools(answer, now))
        lines += _section("Waiting", _waiting(answer.waiting, now))
    elif isinstance(answer, ExplainedProvider):
        lines += _section("Pools", _summaries(answer.pools, now))
        lines += _section("Launchers that tell no status", answer.silent)
        lines += _section("Waiting", _waiting(answer.waiting, now))
    if isinstance(answer, ExplainedRequest | ExplainedNode | ExplainedProvider):
        lines += _section("History", _moments(answer.history))
    lines += _section("To do", getattr(answer, "remedies", ()))
    # Names and texts come from other programs: no escape sequence of theirs may reach the terminal.
    return "\n".join("".join(char if char.isprintable() else " " for char in line).rstrip() for line in lines)


def _section(title: str, lines: Iterable[str]) -> list[str]:
    found = _indented(lines)
    return ["", f"{title}:", *found] if found else []


def _indented(lines: Iterable[str]) -> list[str]:
    return [f"  {line}" for line in lines]


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns side by side; the last one is as long as it likes."""
    widths = [max(len(row[number]) for row in rows) for number in range(len(rows[0]) - 1)] if rows else []
    return [
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]]) for row in rows
    ]


def _facts(answer: Explained, now: float) -> list[str]:
    """Names and values that the sentence does not have."""
    facts: dict[str, object] = {"State": answer.state}
    if isinstance(answer, ExplainedRequest):
        facts |= {"Labels": ", ".join(answer.labels), "Age": _age(answer.age_seconds), "Reason": answer.code}
        facts |= {"Only in": answer.provider, "Tenant": answer.tenant, "Job": answer.job, "Pipeline": answer.pipeline}
        facts |= {"Requestor": answer.requestor, "Event": answer.event_id, "Nodes": ", ".join(answer.nodes)}
    elif isinstance(answer, ExplainedNode):
        facts |= {"Labels": ", ".join(answer.labels), "Age": _age(answer.age_seconds)}
        facts |= {"In this state": _age(answer.state_seconds), "Pool": f"{answer.provider}/{answer.pool or '-'}"}
        facts |= {"Server": answer.external_id, "Request": answer.request, "Tenant": answer.tenant, "Job": answer.job}
        facts |= {"Event": answer.event_id, "Launcher": answer.launcher, "Locked": "yes" if answer.locked else "no"}
        until = None if answer.held_until is None else times.date_and_time(answer.held_until)
        facts |= {"Held by": answer.held_by, "Held until": until}
    elif isinstance(answer, ExplainedLabel):
        facts |= {"Requests": answer.requests, "Oldest": None if answer.oldest is None else _age(now - answer.oldest)}
    elif isinstance(answer, ExplainedProvider):
        facts |= {"Nodes": ", ".join(f"{count} {state}" for state, count in answer.nodes.items())}
        facts |= {"Maintenance": "; ".join(answer.maintenance)}
    return _aligned([(name, str(value)) for name, value in facts.items() if value not in (None, "")])


def _age(seconds: float | None) -> str | None:
    return None if seconds is None else short(seconds)


def _since(since: float | None, now: float) -> str:
    return f"for {short(now - since)}" if since else ""


def _verdicts(pools: Sequence[PoolVerdict], now: float) -> list[str]:
    return _aligned(
        [(one.pool, one.verdict, one.code, _since(one.since, now), ", ".join(one.launchers), one.text) for one in pools]
    )


def _label_pools(answer: ExplainedLabel, now: float) -> list[str]:
    rows = []
    for pool in answer.pools:
        nodes = ", ".join(f"{count} {state}" for state, count in pool.nodes.items())
        said = f"{pool.code}: {pool.text}" if pool.code else ""
        rows.append((pool.pool, f"{pool.free} free", nodes, _since(pool.since, now), said))
    return _aligned(rows)


def _waiting(groups: Sequence[WaitingGroup], now: float) -> list[str]:
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
                others = f", others {amount(limit.others)}" if limit.others else ""
                used = f"{amount(limit.used)} of {amount(limit.limit)}{others}, {amount(left)} free"
                yield f"{pool.name}: {limit.resource} of {limit.scope}: {used}"
        told = pool.launches
        if told.running or told.ok_15m or told.failed_15m:
            counts = f"{told.running} running, in 15 minutes {told.ok_15m} ready, {told.failed_15m} failed"
            yield f"{pool.name}: launches: {counts}"
        if told.last_error is not None:
            yield f"{pool.name}: last failure, {_since(told.last_error.at, now)}: {told.last_error.text}"


def _moments(history: Sequence[Moment]) -> list[str]:
    return _aligned([(times.date_and_time(one.at), one.what, one.code or "", one.text) for one in history])
