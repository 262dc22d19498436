# SPDX-License-Identifier: Apache-2.0
"""What does an operator mean who names a provider, a pool, a label, a host or a launcher?"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from nodepool.model.near_words import did_you_mean


class Subject(NamedTuple):
    """:param kind: a key of `nodepool.model.maintenance.MODES`."""

    kind: str
    name: str


class UnclearSubject(LookupError):
    """Nothing has this name, or several things have. The text says what there is.

    :param unknown: is there nothing of this name?
    """

    def __init__(self, text: str, *, unknown: bool) -> None:
        super().__init__(text)
        self.unknown = unknown


def find(name: str, kinds: Sequence[str], known: Mapping[str, Collection[str]], done: str = "") -> Subject:
    """The subject that a name means.

    A pool may be named without its provider, a launcher by its short host name, and a host in each way in which it is
    known.

    :param kinds: that come into question.
    :param known: names by kind.
    :param done: what all of these are, e.g. ``quarantined``; empty = nothing special.
    :raises UnclearSubject: none or several are meant.
    """
    exact = [Subject(kind, name) for kind in kinds if name in known.get(kind, ())]
    found = exact or sorted({Subject(kind, full) for kind in kinds for full in _matches(kind, name, known)})
    if len(found) == 1:
        return found[0]
    if found:
        text = ", ".join(f"{subject.kind} {subject.name}" for subject in found)
        raise UnclearSubject(f"{name!r} may be {text}: say which", unknown=False)
    raise UnclearSubject(_unknown(name, kinds, known, done), unknown=True)


def _matches(kind: str, name: str, known: Mapping[str, Collection[str]]) -> Iterable[str]:
    for full in known.get(kind, ()):
        short = full.rpartition("/")[2] if kind == "pool" else full.partition(".")[0] if kind == "launcher" else full
        if short == name:
            yield full


def _unknown(name: str, kinds: Sequence[str], known: Mapping[str, Collection[str]], done: str) -> str:
    what = " or ".join(filter(None, (", ".join(kinds[:-1]), kinds[-1])))
    there = sorted({full for kind in kinds for full in known.get(kind, ())})
    if not there:
        return f"no {what} is {done}" if done else f"no {what} is known: does any launcher run?"
    listed = "; ".join(
        f"{kind}s: {', '.join(sorted(known[kind])[:10])}{' ...' if len(known[kind]) > 10 else ''}"
        for kind in kinds
        if known.get(kind)
    )
    missing = f"no {what} {name!r} is {done}" if done else f"there is no {what} {name!r}"
    return f"{missing}{did_you_mean(name, there)} ({listed})"
