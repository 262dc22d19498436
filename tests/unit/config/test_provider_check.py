# SPDX-License-Identifier: Apache-2.0
"""Sections of drivers that have a schema of their own (reference/configuration 1)."""

from __future__ import annotations

from typing import Any

import pytest
import voluptuous as v

from nodepool.config.assembly import DriverError, ProviderCheck
from nodepool.config.marks import parse, substitute
from nodepool.config.problems import Problems, Severity
from nodepool.driver.config import ProviderConfig


class Foreign(ProviderConfig):
    """As a driver that was written for Nodepool 11 has it."""

    broken = False

    @property
    def pools(self) -> dict[str, Any]:
        return {}

    @property
    def manage_images(self) -> bool:
        return False

    def load(self, newconfig: object) -> None:
        """Nothing to do."""

    def getSchema(self) -> v.Schema:
        if self.broken:
            raise OSError("disk")
        return v.Schema({**self.getCommonSchemaDict(), "pools": list, v.Required("region"): str})


def check(text: str) -> tuple[dict[str, Any], dict[str, Any], set[tuple[Severity, str]]]:
    """The section as it was, as it is now, and what was said of which key."""
    problems = Problems()
    document = parse(substitute("f", f"providers:\n- {text}\n", {}), problems)
    before = document.data["providers"][0]
    after = ProviderCheck(document, problems).conform(["providers", 0], before, Foreign(before))
    assert document.data["providers"][0] is after
    return before, after, {(problem.severity, problem.key.partition(".")[2]) for problem in problems.all()}


def test_fine() -> None:
    before, after, problems = check("{name: a, driver: mine, region: x}")
    assert after is before
    assert problems == set()


def test_schema_is_not_asked_by_daemons() -> None:
    """Those of Nodepool 11 never do: what it says is for the validator, and load() decides."""
    assert check("{name: a, driver: mine, region: 7}")[2] == {(Severity.TOLERATED, "region")}


def test_common_keys() -> None:
    """Those count for every driver. Others may have the section by an alias: they keep it as it is."""
    before, after, problems = check("{name: a, region: x, max-concurrency: '3', pools: [{name: p, max-servers: }]}")
    assert after == {"name": "a", "region": "x", "max-concurrency": 3, "pools": [{"name": "p"}]}
    assert (before["max-concurrency"], before["pools"]) == ("3", [{"name": "p", "max-servers": None}])
    assert problems == {(Severity.TOLERATED, "max-concurrency"), (Severity.TOLERATED, "pools[0].max-servers")}
    assert (Severity.ERROR, "priority") in check("{name: a, region: x, priority: low}")[2]


def test_broken_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Foreign, "broken", True)
    with pytest.raises(DriverError, match="OSError: disk"):
        check("{name: a}")
