# SPDX-License-Identifier: Apache-2.0
"""What to do about labels that no pool has, or that no pool has together (rule J-3)."""

from __future__ import annotations

from typing import Any

import pytest

from nodepool.config.objects import Label
from nodepool.driver.config import ConfigPool
from nodepool.launcher import events
from nodepool.launcher.events import LabelHints
from nodepool.plan.triage import PoolInfo


class Pool(ConfigPool):
    def load(self, pool_config: Any) -> None:
        raise NotImplementedError


CONFIGURED = {name: Label(name) for name in ("debian-small", "ubuntu-big", "fedora")}
# A pool of a provider that could not be started.
CONFIGURED["fedora"].pools.append(Pool())


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
        (
            ["fedora"],
            "; no pool that runs has fedora; nodepool status says why the provider that has it is not served",
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
    assert LabelHints(lambda: pools, lambda: CONFIGURED).hint(labels) == hint


def test_searched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """J-3: hundreds of requests for the same label cost one search, until the pools change."""
    searched: list[object] = []

    def search(label: object, known: object) -> str:
        searched.append(label)
        return ""

    monkeypatch.setattr(events, "did_you_mean", search)
    registered = [pool("a")]
    hints = LabelHints(lambda: registered, dict)
    for _ in range(3):
        hints.hint(["b"])
    assert searched == ["b"]
    registered = [pool("a"), pool("b")]
    assert hints.hint(["b"]) == ""


def test_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """J-3."""
    monkeypatch.setattr(events, "MAX_HINTS", 2)
    registered = [pool("a")]
    hints = LabelHints(lambda: registered, dict)
    assert [hints.hint([label]) for label in "bcdb"] == [
        f"; no pool has {label}: correct the nodeset in Zuul, or add the label" for label in "bcdb"
    ]
