# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from nodepool.compat.stats_reporter import StatsReporter, normalize_statsd_name


class Launcher(StatsReporter):
    def __init__(self) -> None:
        super().__init__(None)
        self.provider_config = SimpleNamespace(name="cloud")
        self.node = SimpleNamespace(az="az1")
        self.handler = SimpleNamespace(request=SimpleNamespace(requestor="zuul"))


def test_launches_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr("nodepool.metrics.reports.report_launch", lambda *args, **named: seen.append((args, named)))
    Launcher().recordLaunchStats("ready", 250)
    assert seen == [(("ready", 250), {"provider": "cloud", "az": "az1", "requestor": "zuul"})]


def test_what_the_launcher_counts_is_not_counted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(*_: Any, **__: Any) -> None:
        raise AssertionError

    monkeypatch.setattr("nodepool.metrics.reports.report_launch", nothing)
    reporter = Launcher()
    for name in ("updateNodeRequestStats", "updateNodeStats", "updateProviderLimits", "updateTenantLimits"):
        assert getattr(reporter, name)(None) is None


def test_names() -> None:
    assert normalize_statsd_name("a.b:c d/e") == "a_b_c d/e"
