# SPDX-License-Identifier: Apache-2.0
"""Which launchers serve a file is told by the checksum of what they have loaded."""

from __future__ import annotations

import pytest

from nodepool.model.status import LauncherStatus, ReloadStatus
from nodepool.plan.attention import Registered
from nodepool.plan.config_diff import ServedConfig, served_configs

FILE = "/etc/nodepool/nodepool.yaml"


@pytest.mark.parametrize(
    ("reload", "loaded", "refused", "refused_at"),
    [
        (None, 100.0, "", None),
        (ReloadStatus(200.0, True, "label x added"), 200.0, "", None),
        (ReloadStatus(200.0, False, "nodepool.yaml:5: not YAML"), None, "nodepool.yaml:5: not YAML", 200.0),
    ],
)
@pytest.mark.parametrize(("digest", "serves"), [("9f3c", True), ("1a2b", False)])
def test_when_it_was_loaded(
    digest: str, serves: bool, reload: ReloadStatus | None, loaded: float | None, refused: str, refused_at: float | None
) -> None:
    """OV-7"""
    launcher = LauncherStatus(host="l1", pid=42, config="9f3c", config_file=FILE, since=100.0, reload=reload)
    (found,) = served_configs(digest, [launcher], [])
    assert found == ServedConfig("l1", 42, serves, "9f3c", FILE, loaded, refused, refused_at)
    assert found.to_dict()["serves"] is serves


def test_those_that_do_not_tell() -> None:
    """OV-7: launchers of Nodepool 11 have no status record."""
    launchers = [LauncherStatus(host="l2", pid=2, config="9f3c"), LauncherStatus(host="l2", pid=1)]
    registered = [Registered("l2", "12.0.0"), Registered("l1", "11.0.0"), Registered("l1", "11.0.0")]
    found = served_configs("9f3c", launchers, registered)
    assert [(served.launcher, served.pid, served.serves) for served in found] == [
        ("l1", None, None),
        ("l2", 1, None),
        ("l2", 2, True),
    ]
