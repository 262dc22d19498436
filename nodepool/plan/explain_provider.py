# SPDX-License-Identifier: Apache-2.0
"""Does a provider work, how full is it, and what do its requests wait for? See `nodepool.plan.explain`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from nodepool.model.launcher_status import AbsentProvider
from nodepool.model.maintenance import Maintenance
from nodepool.plan import launch_steps
from nodepool.plan.attention import look_at_place, named, of_missing
from nodepool.plan.explain_label import waiting_groups
from nodepool.plan.explained import ExplainedPool, ExplainedProvider, Moment
from nodepool.plan.observed import Observed
from nodepool.plan.ownerless import end_of_other, of_other, of_provider, of_uploads
from nodepool.plan.pool_summary import STATES, PoolSummary, limiting, others_of, slowest, summarize


def explain_provider(name: str, seen: Observed) -> ExplainedProvider:
    """The state of a provider, since when, and why.

    :param name: of the provider, or ``<provider>/<pool>`` for one pool of it.
    """
    provider = seen.provider_of(name)
    pool_name = name[len(provider) + 1 :]
    facts = [pool for pool in seen.pools.values() if pool.provider == provider and name in (provider, pool.name)]
    pools = summarize(pool.status for pool in facts if pool.status is not None)
    silent = [f"{pool.host} ({pool.version}): {pool.name}" for pool in facts if pool.status is None]
    subjects = [("provider", provider), *(("pool", pool.name) for pool in facts)]
    records = seen.maintenance_of([*subjects, *(("launcher", pool.host) for pool in facts)])
    worst = min(pools, key=lambda one: STATES.index(one.state) if one.state in STATES else 0, default=None)
    nodes = [
        node for node in seen.nodes.values() if node.provider == provider and (not pool_name or node.pool == pool_name)
    ]
    left, uploads = of_provider(name, seen), of_uploads(provider, seen)
    answer = ExplainedPool if pool_name else ExplainedProvider
    absent = [] if pool_name else seen.absent_providers.get(provider, ())
    state = worst.state if worst is not None else "not served" if absent and not silent else "unknown"
    return answer(
        id=name,
        state=state,
        text=_text(name, worst, pools, silent, records, absent, seen.now) if left is None else left.text,
        nodes=dict(Counter(node.state for node in sorted(nodes, key=lambda node: node.state))),
        pools=pools,
        silent=silent,
        waiting=waiting_groups(
            seen, lambda pool, one: not one.min_ready and name in (pool.provider, f"{pool.provider}/{pool.pool}")
        ),
        maintenance=[record.text for record in records],
        history=_history(name, seen),
        remedies=[
            *([] if left is None else [left.remedy]),
            *([] if uploads is None else [f"{uploads.text}: {uploads.remedy}"]),
            *_remedies(pools, records, seen),
            *_missing(provider, pools, seen.now),
            *_others(provider, pools),
            *_remedies_of_absent(absent, seen),
        ],
    )


def _text(
    name: str,
    worst: PoolSummary | None,
    pools: Sequence[PoolSummary],
    silent: Sequence[str],
    records: Sequence[Maintenance],
    absent: Sequence[tuple[str, AbsentProvider]],
    now: float,
) -> str:
    if records:
        text, own = "; ".join(record.text for record in records), f"{records[0].kind} {name} "
        return text.removeprefix(own) if text.startswith(own) else f"is subject to maintenance: {text}"
    if worst is None and absent and not silent:
        return "; ".join(f"is not served by launcher {host}: {one.text}" for host, one in absent)
    if worst is None:
        return f"tells no status: {named(silent)}" if silent else "no launcher has it"
    slow = launch_steps.slow(launch for pool in pools for launch in pool.launching)
    running = sum(pool.launches.running for pool in pools)
    calls = slowest(pool.slow_calls for pool in pools)
    long = f"; {launch_steps.summary(slow, running, now)}" if slow else ""
    long += f"; {launch_steps.slow_calls(calls)}" if calls else ""
    if worst.state == "running":
        full = limiting(limit for pool in pools for limit in pool.limits)
        most = "" if full is None else f"; {full.used + full.others:g} of {full.limit:g} {full.resource} are used"
        return f"works{' slowly' if slow or calls else ''}{long}{most}"
    cause = f": {worst.text}" if worst.text else ""
    which = "" if "/" in name else f"pool {worst.pool} "
    return f"{which}is {worst.state}{cause}{long}"


def _history(name: str, seen: Observed) -> list[Moment]:
    """Its events, the oldest first."""
    subjects = {f"provider {name}", f"pool {name}", f"provider {name.partition('/')[0]}"}
    found = [
        Moment(event.at, event.what, event.code or None, event.text)
        for event in seen.events
        if event.subject in subjects or event.subject.startswith(f"pool {name}/")
    ]
    return sorted(found, key=lambda moment: moment.at)


def _remedies(pools: Sequence[PoolSummary], records: Sequence[Maintenance], seen: Observed) -> list[str]:
    found = [f"nodepool resume {record.kind} {record.name}" for record in records]
    for pool in pools:
        if pool.next is not None and pool.state == "unavailable":
            found.append(f"{pool.name} is tried again in {max(0.0, pool.next - seen.now):.0f} s")
        found += [f"label {label} of {pool.name}: {error.text}" for label, error in sorted(pool.labels.items())]
        slow = launch_steps.slow(pool.launching)
        if slow:
            found.append(f"nodepool explain {slow[0].node} shows the launch of {pool.name} that waits for longest")
        down = [host.name for host in pool.hosts if host.up is False]
        if down:
            found.append(f"hosts of {pool.name} are down: {named(down)}")
    return found


def _missing(provider: str, pools: Sequence[PoolSummary], now: float) -> list[str]:
    missing = {node: when for pool in pools for node, when in pool.missing.items()}
    if not missing:
        return []
    left = max(0.0, min(missing.values()) - now)
    return [f"{of_missing(provider, sorted(missing))}: {look_at_place()}; they count as lost in {left:.0f} s"]


def _others(provider: str, pools: Sequence[PoolSummary]) -> list[str]:
    return [
        f"{of_other(provider, other, count)}: {end_of_other(provider, other)}"
        for other, count in others_of(pool.other_installations for pool in pools).items()
    ]


def _remedies_of_absent(absent: Sequence[tuple[str, AbsentProvider]], seen: Observed) -> list[str]:
    found = [
        f"launcher {host} does not serve it: {one.text}"
        + ("" if one.next is None else f"; its start is tried again in {max(0.0, one.next - seen.now):.0f} s")
        for host, one in absent
    ]
    return found + [f"nodepool check {name} tries what it needs" for name in sorted({one.name for _, one in absent})]
