# SPDX-License-Identifier: Apache-2.0
"""Which launches take too long, and a launch in words: its step, since when, and what ends it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from nodepool.model.elapsed import short
from nodepool.model.pool_status import LaunchStatus

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
    "build": "the cloud, which has it and does not run it yet",
    "keys": "an answer at its port: it runs, and its host keys are asked for",
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
    return f"waits for {what}{state} for {_age(launch.since, now)}{_times(launch, now)}"


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
    return f"{head}: {who}{verb} for {what}, {most} {_age(longest.since, now)}{_times(same[0], now)}"


def rounded(seconds: float) -> float:
    """Down to a tenth of a minute, and to minutes from ten on."""
    step = 6.0 if seconds < 600.0 else 60.0
    return seconds // step * step


def slow_calls(calls: Mapping[str, float]) -> str:
    """Questions to a cloud that take long, the longest first: ``a list of instances takes 42 s``."""
    ordered = sorted(calls.items(), key=lambda call: (-call[1], call[0]))
    return ", ".join(f"{_ASKED.get(hook, hook)} takes {short(seconds)}" for hook, seconds in ordered)


def _age(since: float, now: float) -> str:
    return short(now - since)


def _times(launch: LaunchStatus, now: float) -> str:
    """How long the launch has taken, what is usual, and what ends it."""
    usual = "" if launch.usual is None else f", usually it takes {_usual(launch.usual)}"
    ends = "" if launch.ends is None else f"; {launch.option} ends the attempt in {short(launch.ends - now)}"
    return f" (the launch began {_age(launch.begun, now)} ago{usual}{ends})"


def _usual(seconds: float) -> str:
    return short(seconds) if seconds >= 1 else "less than 1 s"
