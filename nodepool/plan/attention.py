# SPDX-License-Identifier: Apache-2.0
"""What needs the attention of an operator: the second part of ``nodepool status``.

First the problems, then which launches take too long, then the events that follow from two status records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from nodepool.model.event import Event, What, counted, grouped, named, short
from nodepool.model.node import Node
from nodepool.model.request import NodeRequest
from nodepool.model.status import Component, HostStatus, LauncherStatus, LaunchStatus, PoolComponent, PoolStatus
from nodepool.plan import observed
from nodepool.plan.images import rolled_back
from nodepool.plan.observed import Observed
from nodepool.plan.pool_summary import PoolSummary, by_provider, largest
from nodepool.plan.static import is_parked

#: A deletion that takes longer is in trouble.
DELETING_SECONDS: Final = 600.0
#: Hosts of a pool that are down and have a problem each; more have one together.
MAX_HOSTS: Final = 5
#: Launches that failed in the last 15 minutes from which on they are reported, if no fewer failed than went well.
MANY_FAILED: Final = 3


@dataclass(frozen=True)
class StatusProblem:
    """One thing that needs attention.

    :param kind: for programs: ``launcher``, ``provider``, ``maintenance``, ``label``, ``host``, ``node``, ``reload``,
        ``version``, ``configuration``, ``launch`` or ``image``.
    :param since: when it began, and ``next``: when it is tried again, or when it ends for ``maintenance``; in seconds
        since the epoch; None = not known.
    :param command: arguments of ``nodepool`` that show more.
    """

    kind: str
    text: str
    since: float | None = None
    next: float | None = None
    command: str = ""


_NO_LAUNCHER: Final = StatusProblem("launcher", "no launcher is registered: nothing serves requests")


def registered_launchers(pools: Iterable[PoolComponent]) -> list[PoolComponent]:
    """A pool of each launcher that has registered one, by host."""
    return sorted({pool.hostname: pool for pool in pools}.values(), key=lambda pool: pool.hostname)


def problems(pools: Sequence[PoolSummary], registered: Sequence[Component], seen: Observed) -> list[StatusProblem]:
    """Everything that needs attention, the worst first.

    :param registered: entries of all launchers; those of older releases report no status.
    """
    launchers, nodes, maintenance, now = seen.launchers, seen.node_index, seen.maintenance, seen.now
    return [
        *([] if registered or launchers else [_NO_LAUNCHER]),
        *_providers(pools),
        *_absent(launchers),
        *_ownerless(seen),
        *_missing(pools),
        *_maintenance(seen),
        *_labels(pools),
        *_launches(pools),
        *_slow(pools, now),
        *_candidates(seen),
        *_hosts(pools, {record.name for record in maintenance if record.kind == "host" and not record.is_over(now)}),
        *_unfetched(seen.unfetched),
        *_deleting(nodes.deleting, now),
        *_held(nodes.held),
        *_reloads(launchers),
        *_differences(launchers, registered),
    ]


def _providers(pools: Sequence[PoolSummary]) -> Iterator[StatusProblem]:
    for provider, members in by_provider(pools).items():
        gone = [pool for pool in members if pool.state == "unavailable"]
        if not gone:
            continue
        first = min(gone, key=lambda pool: pool.since)
        where = provider if len(gone) == len(members) else named([pool.name for pool in gone])
        count = len(first.launchers)
        some = f" for {first.affected} of {count} launchers" if first.affected < count else ""
        text = f"provider {where} is unavailable{some}: {first.text or first.code or 'the log says why'}"
        yield StatusProblem("provider", text, first.since, first.next, f"explain {provider}")


def _absent(launchers: Sequence[LauncherStatus]) -> Iterator[StatusProblem]:
    """Providers that could not be started, and so have no pool that could tell."""
    for launcher in launchers:
        for absent in launcher.absent:
            text = f"provider {absent.name} is not served by launcher {launcher.host}: {absent.text}"
            yield StatusProblem("provider", text, absent.since, absent.next, "providers")


def _ownerless(seen: Observed) -> Iterator[StatusProblem]:
    for found in observed.ownerless(seen):
        kind = "provider" if found.kind == "uploads" else found.kind
        command = f"explain {found.name}" if kind == "provider" else ""
        yield StatusProblem(kind, f"{found.text}: {found.remedy}", found.since, command=command)


def _missing(pools: Sequence[PoolSummary]) -> Iterator[StatusProblem]:
    for provider, members in by_provider(pools).items():
        for text, when in missing_of(provider, members):
            yield StatusProblem("provider", text, next=when, command=f"explain {provider}")
        for text in of_others(provider, members):
            yield StatusProblem("provider", text, command=f"explain {provider}")


def missing_of(provider: str, pools: Sequence[PoolSummary]) -> list[tuple[str, float]]:
    """D-9: the nodes of a provider that are missing, with what ends it, and when the first one counts as lost."""
    missing = {node: when for pool in pools for node, when in pool.missing.items()}
    text = f"{of_missing(provider, sorted(missing))}: {look_at_place()}"
    return [(text, min(missing.values()))] if missing else []


def of_missing(provider: str, nodes: Sequence[str]) -> str:
    """D-9: nodes of a provider that are missing together."""
    return f"the cloud of provider {provider} shows no instance of {len(nodes)} nodes any more ({named(nodes)})"


def look_at_place() -> str:
    """What ends it."""
    return (
        "they are not used; correct the project, region or credentials of the provider, "
        "or nodepool delete replaces the nodes at once"
    )


def of_others(provider: str, pools: Sequence[PoolSummary]) -> list[str]:
    """D-10: what other installations have in the cloud of a provider, with what ends it."""
    found = largest(pool.other_installations for pool in pools)
    return [
        f"{observed.of_other(provider, other, count)}: {observed.end_of_other(provider, other)}"
        for other, count in found.items()
    ]


def _maintenance(seen: Observed) -> Iterator[StatusProblem]:
    for record in sorted(seen.maintenance, key=lambda record: record.since):
        if record.is_over(seen.now):
            continue
        text = record.text
        if record.kind == "image":
            text = f"{text}: it is not built; nodepool image-unpause {record.name} ends it"
        yield StatusProblem("maintenance", text, record.since, record.until, "maintenance")


def _labels(pools: Sequence[PoolSummary]) -> Iterator[StatusProblem]:
    for pool in pools:
        by_cause = grouped(pool.labels.items(), lambda label: (label[1].code, label[1].text))
        for (_, text), same in by_cause.items():
            names, since = [name for name, _ in same], min(label.since for _, label in same)
            told = f"{'label' if len(names) == 1 else 'labels'} {named(names)} of {pool.name}: {text}"
            yield StatusProblem("label", told, since, command=f"explain {names[0]}")


def _launches(pools: Sequence[PoolSummary]) -> Iterator[StatusProblem]:
    for pool in pools:
        ended = pool.launches
        if ended.failed_15m < MANY_FAILED or ended.failed_15m < ended.ok_15m:
            continue
        total = ended.ok_15m + ended.failed_15m
        text = f"{ended.failed_15m} of {total} launches in {pool.name} failed in the last 15 minutes"
        if ended.last_error is not None:
            text += f"; the last one: {ended.last_error.text}"
        yield StatusProblem("launch", text, command=f"explain {pool.provider}")


def _slow(pools: Sequence[PoolSummary], now: float) -> Iterator[StatusProblem]:
    for provider, members in by_provider(pools).items():
        if calls := slow_calls(members):
            text = f"the cloud of provider {provider} answers slowly: {calls}"
            yield StatusProblem("provider", text, command=f"explain {provider}")
        # What is unavailable says so with the same error.
        if (failing := failing_calls(members)) and not any(pool.state == UNAVAILABLE for pool in members):
            text = f"calls to the cloud of provider {provider} fail: {failing}"
            yield StatusProblem("provider", text, command=f"explain {provider}")
    for pool in pools:
        launches = slow(pool.launching)
        if launches:
            text = f"{pool.name}: {summary(launches, pool.launches.running, now)}"
            yield StatusProblem("launch", text, launches[0].begun, command=f"explain {pool.name}")


def _candidates(seen: Observed) -> Iterator[StatusProblem]:
    """New images that were rolled back, and those of which too little is known for too long."""
    for image, provider, upload in rolled_back(seen.images):
        text = f"the new image {image} was rolled back in {provider}: {upload.verdict}"
        yield StatusProblem("image", text, command=f"explain {image}")
    late = {(one.image, one.provider): one for own in seen.launchers for one in own.candidates if one.late}
    for (image, provider), candidate in sorted(late.items()):
        text = f"the new image {image} is still tried in {provider}: {candidate.text}"
        yield StatusProblem("image", text, candidate.since, command=f"explain {image}")


def _hosts(pools: Sequence[PoolSummary], told: Collection[str]) -> Iterator[StatusProblem]:
    """:param told: hosts whose quarantine is a maintenance record, which says more."""
    for pool in pools:
        down = [host for host in pool.hosts if host.up is False and host.quarantine is None]
        quarantined = [host for host in pool.hosts if host.quarantine is not None]
        aside = [host for host in quarantined if not {host.name, observed.host_name(host.name)} & set(told)]
        if len(down) > MAX_HOSTS:
            names = named([host.name for host in down])
            text = f"{len(down)} of {len(pool.hosts)} hosts of {pool.name} are down: {names}"
            yield StatusProblem("host", text, min(host.since for host in down), command="hosts")
        else:
            for host in down:
                text = f"host {host.name} of {pool.name} is down: {host.text}"
                yield StatusProblem("host", text, host.since, host.next, "hosts")
        for host in aside:
            text = f"host {host.name} of {pool.name} is quarantined: {host.quarantine}"
            yield StatusProblem("host", text, None, host.next, "hosts")


def _deleting(nodes: Iterable[Node], now: float) -> Iterator[StatusProblem]:
    stuck = [node for node in nodes if node.state_time is not None and now - node.state_time > DELETING_SECONDS]
    for provider, found in sorted(grouped(stuck, lambda node: node.provider or "").items()):
        found.sort(key=lambda node: node.state_time or 0.0)
        text = f"{counted(len(found), 'node')} of {provider} in state deleting for more than 10 minutes: {_ids(found)}"
        yield StatusProblem("node", text, found[0].state_time, command=f"explain {found[0].id}")


def _unfetched(requests: Sequence[NodeRequest]) -> Iterator[StatusProblem]:
    for requestor, found in grouped(requests, lambda request: request.requestor or "its requestor").items():
        count = sum(len(request.nodes) for request in found)
        of = f"request {found[0].id}" if len(found) == 1 else f"{len(found)} requests"
        text = f"{requestor} has not fetched {counted(count, 'ready node')} of {of}, which others cannot have"
        yield StatusProblem("node", text, found[0].state_time, command=f"explain {found[0].id}")


def _held(nodes: Iterable[Node]) -> Iterator[StatusProblem]:
    held = [node for node in nodes if not node.hold_expiration and not is_parked(node)]
    if held:
        held.sort(key=lambda node: node.state_time or 0.0)
        what = "node is" if len(held) == 1 else "nodes are"
        text = f"{len(held)} {what} on hold without an end: {_ids(held)}"
        yield StatusProblem("node", text, held[0].state_time, command="list --state hold")


def _reloads(launchers: Sequence[LauncherStatus]) -> Iterator[StatusProblem]:
    failed = [(one.host, one.reload) for one in launchers if one.reload is not None and not one.reload.ok]
    for text, found in grouped(failed, lambda entry: entry[1].text).items():
        since = min(reload.at for _, reload in found)
        hosts = named([host for host, _ in found])
        yield StatusProblem(
            "reload", f"the changed configuration is not in effect on {hosts}: {text}", since, command="config-validate"
        )


def _differences(launchers: Sequence[LauncherStatus], registered: Sequence[Component]) -> Iterator[StatusProblem]:
    versions = {entry.hostname: entry.version or "unknown" for entry in registered}
    versions.update({launcher.host: launcher.version for launcher in launchers})
    yield from _differing("version", "versions", versions)
    hashes = {launcher.host: launcher.config for launcher in launchers if launcher.config}
    yield from _differing("configuration", "configurations", hashes)


def _differing(kind: str, what: str, values: dict[str, str]) -> Iterator[StatusProblem]:
    if len(set(values.values())) < 2:
        return
    hosts = grouped(sorted(values), values.__getitem__)
    order = sorted(hosts, key=lambda value: -len(hosts[value]))
    told = "; ".join(f"{value} on {named(hosts[value])}" for value in order)
    yield StatusProblem(kind, f"launchers run with different {what}: {told}", command="launchers")


def _ids(nodes: Sequence[Node]) -> str:
    return named([node.id or "" for node in nodes])


# Which launches take too long, and a launch in words: its step, since when, and what ends it.

#: Launches in progress for a shorter time are not reported one by one, in seconds.
REPORTED_SECONDS: Final = 10.0
#: A launch that takes so many times the usual time is slow; none is before so many seconds.
FACTOR: Final = 4.0
LEAST_SECONDS: Final = 30.0
#: As long as no launch shows what is usual.
UNKNOWN_SECONDS: Final = 300.0
#: Step -> after so many seconds it is slow, whatever is usual.
MOST_SECONDS: Final[Mapping[str, float]] = {"call": 60.0}
#: A question to the cloud that takes so long is slow, in seconds.
SLOW_CALL_SECONDS: Final = LEAST_SECONDS
#: A question to the cloud that failed so often in a row needs attention. Any of them may fail once.
FAILING_CALLS: Final = 2
#: What a question to the cloud asks for.
_ASKED: Final[Mapping[str, str]] = {
    "listInstances": "a list of instances",
    "listResources": "a list of what may be left over",
    "getQuotaLimits": "the look-up of limits",
    "getQuotaForLabel": "the look-up of what a label needs",
    "getAZs": "a list of zones",
    "labelReady": "the look-up of an image",
    "listImages": "a list of images",
    "isGone": "the look-up of an instance",
    "deleteResource": "a deletion",
}
#: What a launch waits for in each step.
_WAITS_FOR: Final[Mapping[str, str]] = {
    "begin": "its begin",
    "wait": "what it needs before it is created",
    "call": "the answer of the cloud to the call that creates it",
    "build": "the cloud to run what it created",
    "keys": "an answer at its port: it runs, and its host keys are asked for",
    "check": "the end of its ready-check, a command that is run over SSH",
    "search": "lists of the cloud, for what a failed attempt may have left",
    "clean": "the deletion of what the attempt before left",
    "end": "ZooKeeper, which stores it",
}


def is_slow(launch: LaunchStatus, now: float) -> bool:
    """Does a launch, or its step, take too long? :param now: seconds since the epoch."""
    limit = UNKNOWN_SECONDS if launch.usual is None else max(LEAST_SECONDS, FACTOR * launch.usual)
    return now - launch.begun > limit or now - launch.since > MOST_SECONDS.get(launch.step, limit)


def described(launch: LaunchStatus, now: float) -> str:
    """A launch in half a sentence: ``waits for ... for 40 s (...)``."""
    what = _WAITS_FOR.get(launch.step, "the driver")
    state = f" (it is {launch.text})" if launch.text else ""
    return f"waits for {what}{state} for {short(now - launch.since)}{_times(launch, now)}"


def slow(launches: Iterable[LaunchStatus]) -> list[LaunchStatus]:
    """Those that take too long, the one that began first is the first."""
    return sorted((launch for launch in launches if launch.slow), key=lambda launch: launch.begun)


def summary(launches: Sequence[LaunchStatus], running: int, now: float) -> str:
    """Slow launches of a pool in a sentence without its subject's place: ``2 of 3 launches take long: ...``.

    :param launches: slow ones, see `slow`. ``running``: all launches of the pool.
    """
    steps = Counter(launch.step for launch in launches)
    step = steps.most_common(1)[0][0]
    same = [launch for launch in launches if launch.step == step]
    total = max(running, len(launches))
    head = f"{len(launches)} of {total} {'launch takes' if total == 1 else 'launches take'} long"
    if total > 1 and len(launches) == 1:
        head = f"1 of {total} launches takes long"
    who = "" if len(same) == len(launches) else f"{len(same)} of them "
    verb = "it waits" if len(launches) == 1 else "wait" if who else "they wait"
    what = _WAITS_FOR.get(step, "the driver")
    longest = min(same, key=lambda launch: launch.since)
    most = "for" if len(same) == 1 else "up to"
    return f"{head}: {who}{verb} for {what}, {most} {short(now - longest.since)}{_times(same[0], now)}"


def rounded(seconds: float) -> float:
    """Down to a tenth of a minute, and to minutes from ten on."""
    step = 6.0 if seconds < 600.0 else 60.0
    return seconds // step * step


def slow_calls(pools: Iterable[PoolSummary]) -> str:
    """Questions to a cloud that take long, the longest first: ``a list of instances takes 42 s``."""
    ordered = sorted(largest(pool.slow_calls for pool in pools).items(), key=lambda call: (-call[1], call[0]))
    return ", ".join(f"{_ASKED.get(hook, hook)} takes {short(seconds)}" for hook, seconds in ordered)


def failing_calls(pools: Iterable[PoolSummary]) -> str:
    """Questions to a cloud that fail: ``a deletion failed several times in a row (503)``."""
    calls = {hook: error for pool in pools for hook, error in pool.failing_calls.items()}
    failed = "failed several times in a row"
    return ", ".join(f"{_ASKED.get(hook, hook)} {failed} ({error})" for hook, error in sorted(calls.items()))


def _times(launch: LaunchStatus, now: float) -> str:
    """How long the launch has taken, what is usual, and what ends it."""
    usual = ""
    if launch.usual is not None:
        usual = f", usually it takes {short(launch.usual) if launch.usual >= 1 else 'less than 1 s'}"
    ends = "" if launch.ends is None else f"; {launch.option} ends the attempt in {short(launch.ends - now)}"
    return f" (the launch began {short(now - launch.begun)} ago{usual}{ends})"


# Events that follow from two status records of a pool; and the events of all launchers as one list.

#: State of a pool whose provider launches nothing.
UNAVAILABLE: Final = "unavailable"
#: The same event of several launchers within so many seconds is one.
SAME_SECONDS: Final = 60.0
#: Launchers of such an event that are named.
MAX_ACTORS: Final = 3


def pool_events(before: PoolStatus | None, after: PoolStatus, now: float) -> list[Event]:
    """What happened in a pool between two records.

    :param before: None = ``after`` is the first one: only what is wrong is an event.
    :param now: seconds since the epoch.
    """
    old = before or PoolStatus()
    return [
        *_state(old, after, now),
        *_label_events(old, after, now),
        *_launch_events(old, after),
        *_slow_events(old, after, now),
        *_host_events(old, after, now),
    ]


def _event(status: PoolStatus, now: float, subject: str, what: What, code: str = "", text: str = "") -> Event:
    return Event(now, status.host, subject, what.value, code, text)


def _state(old: PoolStatus, new: PoolStatus, now: float) -> Iterator[Event]:
    subject = f"provider {new.provider}"
    if new.state == UNAVAILABLE and (old.state != UNAVAILABLE or old.code != new.code):
        yield _event(new, new.since or now, subject, What.UNAVAILABLE, new.code or "", new.text or "")
    elif old.state == UNAVAILABLE and new.state != UNAVAILABLE:
        yield _event(new, new.since or now, subject, What.AVAILABLE)


def _label_events(old: PoolStatus, new: PoolStatus, now: float) -> Iterator[Event]:
    for name, label in new.labels.items():
        before = old.labels.get(name)
        if before is None or before.code != label.code:
            at = label.since if before is None and label.since else now
            yield _event(new, at, _label(new, name), What.UNAVAILABLE, label.code, label.text)
    for name in old.labels:
        if name not in new.labels:
            yield _event(new, now, _label(new, name), What.AVAILABLE)


def _label(status: PoolStatus, name: str) -> str:
    return f"label {name} of {status.provider}/{status.pool}"


def _launch_events(old: PoolStatus, new: PoolStatus) -> Iterator[Event]:
    """Of several that failed between two records the last one."""
    error = new.launches.last_error
    if error is None or error == old.launches.last_error:
        return
    subject = f"node {error.node}" if error.node else f"pool {new.provider}/{new.pool}"
    text = f"{error.label}: {error.text}" if error.label else error.text
    yield Event(error.at, f"{new.host} {new.provider}/{new.pool}", subject, What.LAUNCH_FAILED.value, error.code, text)


def _slow_events(old: PoolStatus, new: PoolStatus, now: float) -> Iterator[Event]:
    subject = f"pool {new.provider}/{new.pool}"
    before, after = slow(old.launching), slow(new.launching)
    if after and not before:
        yield _event(new, now, subject, What.SLOW, text=summary(after, new.launches.running, now))
    elif before and not after:
        yield _event(new, now, subject, What.USUAL)


def _host_events(old: PoolStatus, new: PoolStatus, now: float) -> Iterator[Event]:
    before: Mapping[str, HostStatus] = {host.name: host for host in old.hosts}
    for host in new.hosts:
        was = before.get(host.name, HostStatus())
        subject = f"host {host.name}"
        if host.quarantine is not None and was.quarantine is None:
            yield _event(new, now, subject, What.QUARANTINED, text=host.quarantine)
        elif host.quarantine is None and was.quarantine is not None:
            yield _event(new, now, subject, What.RELEASED)
        if host.up is False and was.up is not False:
            yield _event(new, host.since or now, subject, What.DOWN, text=host.text)
        elif host.up and was.up is False:
            yield _event(new, host.since or now, subject, What.UP)


def merged(events: Iterable[Event], since: float = 0.0) -> list[Event]:
    """Events of all launchers, the oldest first.

    What several launchers saw, as all of them follow the same files and hosts, is there once with all their names.

    :param since: seconds since the epoch; older events are left out.
    """
    found: list[Event] = []
    #: Subject -> place of its last event.
    last: dict[str, int] = {}
    actors: list[list[str]] = []
    for event in sorted(events, key=lambda event: event.at):
        if event.at < since:
            continue
        place = last.get(event.subject)
        if place is not None and _is_same(found[place], event):
            if event.actor not in actors[place]:
                actors[place].append(event.actor)
            continue
        last[event.subject] = len(found)
        found.append(event)
        actors.append([event.actor])
    return [replace(event, actor=named(names, MAX_ACTORS)) for event, names in zip(found, actors, strict=True)]


def _is_same(one: Event, other: Event) -> bool:
    same = (one.what, one.code, one.text) == (other.what, other.code, other.text)
    return same and other.at - one.at < SAME_SECONDS
