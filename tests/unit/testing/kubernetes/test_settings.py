# SPDX-License-Identifier: Apache-2.0
"""Settings of the simulated cluster."""

from __future__ import annotations

import pytest

from nodepool.testing.kubernetes import ErrorRule, KubernetesSettings, PodRule, WatchRule


def test_rules_come_from_json() -> None:
    settings = KubernetesSettings()
    settings.update(
        {
            "pods": [{"outcome": "failed", "count": 2}],
            "watches": [{"kind": "cut", "resource": "pods"}],
            "errors": [{"operation": "pods.create", "kind": "drop", "after": True}],
            "start_seconds": 3,
        }
    )
    assert settings.pods == [PodRule(outcome="failed", count=2)]
    assert settings.watches == [WatchRule(kind="cut", resource="pods")]
    assert settings.errors == [ErrorRule(operation="pods.create", kind="drop", after=True)]
    assert settings.start_seconds == (3.0, 3.0)


@pytest.mark.parametrize("changes", [{"pods": [{"outcome": "odd"}]}, {"watches": [{"kind": "odd"}]}, {"odd": 1}])
def test_what_is_unknown_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="odd"):
        KubernetesSettings().update(changes)
