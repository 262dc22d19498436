# SPDX-License-Identifier: Apache-2.0
"""What to do about labels that no pool has, or that no pool has together (rule J-3)."""

from __future__ import annotations

import pytest

from nodepool.launcher import label_hints
from nodepool.launcher.label_hints import LabelHints
from nodepool.plan.assignment import PoolInfo


def pool(*labels: str) -> PoolInfo:
    return PoolInfo("id", "cloud", frozenset(labels), 100, False, "main")


@pytest.mark.parametrize(
    ("labels", "hint"),
    [
        (["debian-smal"], "; no pool has debian-smal, did you mean 'debian-small'?"),
        (["ubuntu-bg"], "; no pool has ubuntu-bg, did you mean 'ubuntu-big'?"),
        (["windows"], "; no pool has windows: correct the nodeset in Zuul, or add the label"),
        (
            ["ubuntu-big"],
            "; no pool that runs has ubuntu-big, although it is among the configured labels: add it to a pool",
        ),
        (["debian-small", "windows"], "; no pool has windows: correct the nodeset in Zuul, or add the label"),
        (["debian-small", "debian-large"], ""),
        (
            ["debian-large", "centos", "debian-large"],
            "; no pool has all of centos, debian-large: the nodes of a request come from one pool",
        ),
        ([], ""),
    ],
)
def test_hint(labels: list[str], hint: str) -> None:
    """J-3: labels of registered pools and of the configuration."""
    pools = [pool("debian-small", "debian-large"), pool("centos", "debian-small")]
    assert LabelHints(lambda: pools, lambda: {"debian-small", "ubuntu-big"}).hint(labels) == hint


def test_searched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """J-3: hundreds of requests for the same label cost one search, until the pools change."""
    searched: list[object] = []

    def search(label: object, known: object) -> str:
        searched.append(label)
        return ""

    monkeypatch.setattr(label_hints, "did_you_mean", search)
    registered = [pool("a")]
    hints = LabelHints(lambda: registered, set)
    for _ in range(3):
        hints.hint(["b"])
    assert searched == ["b"]
    registered = [pool("a"), pool("b")]
    assert hints.hint(["b"]) == ""


def test_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """J-3."""
    monkeypatch.setattr(label_hints, "MAX_HINTS", 2)
    registered = [pool("a")]
    hints = LabelHints(lambda: registered, set)
    assert [hints.hint([label]) for label in "bcdb"] == [
        f"; no pool has {label}: correct the nodeset in Zuul, or add the label" for label in "bcdb"
    ]
