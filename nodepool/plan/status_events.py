# SPDX-License-Identifier: Apache-2.0
"""Events that follow from two status records of a pool; and the events of all launchers as one list."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from nodepool.model.event import Event, What
from nodepool.model.pool_status import HostStatus, PoolStatus
from nodepool.plan import launch_steps

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
        *_labels(old, after, now),
        *_launches(old, after),
        *_slow(old, after, now),
        *_hosts(old, after, now),
    ]


def _event(status: PoolStatus, now: float, subject: str, what: What, code: str = "", text: str = "") -> Event:
    return Event(now, status.host, subject, what.value, code, text)


def _state(old: PoolStatus, new: PoolStatus, now: float) -> Iterator[Event]:
    subject = f"provider {new.provider}"
    if new.state == UNAVAILABLE and (old.state != UNAVAILABLE or old.code != new.code):
        yield _event(new, new.since or now, subject, What.UNAVAILABLE, new.code or "", new.text or "")
    elif old.state == UNAVAILABLE and new.state != UNAVAILABLE:
        yield _event(new, new.since or now, subject, What.AVAILABLE)


def _labels(old: PoolStatus, new: PoolStatus, now: float) -> Iterator[Event]:
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


def _launches(old: PoolStatus, new: PoolStatus) -> Iterator[Event]:
    """Of several that failed between two records the last one."""
    error = new.launches.last_error
    if error is None or error == old.launches.last_error:
        return
    subject = f"node {error.node}" if error.node else f"pool {new.provider}/{new.pool}"
    text = f"{error.label}: {error.text}" if error.label else error.text
    yield Event(error.at, f"{new.host} {new.provider}/{new.pool}", subject, What.LAUNCH_FAILED.value, error.code, text)


def _slow(old: PoolStatus, new: PoolStatus, now: float) -> Iterator[Event]:
    subject = f"pool {new.provider}/{new.pool}"
    before, after = launch_steps.slow(old.launching), launch_steps.slow(new.launching)
    if after and not before:
        yield _event(new, now, subject, What.SLOW, text=launch_steps.summary(after, new.launches.running, now))
    elif before and not after:
        yield _event(new, now, subject, What.USUAL)


def _hosts(old: PoolStatus, new: PoolStatus, now: float) -> Iterator[Event]:
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
    return [replace(event, actor=_names(names)) for event, names in zip(found, actors, strict=True)]


def _is_same(one: Event, other: Event) -> bool:
    same = (one.what, one.code, one.text) == (other.what, other.code, other.text)
    return same and other.at - one.at < SAME_SECONDS


def _names(actors: Sequence[str]) -> str:
    more = len(actors) - MAX_ACTORS
    names = ", ".join(actors[:MAX_ACTORS])
    return f"{names} and {more} more" if more > 0 else names
