# SPDX-License-Identifier: Apache-2.0
"""What signals mean for a builder. Its whole life: tests/integration/test_builder_daemon.py."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from nodepool.builder.supervisor import BuilderOptions, ImageBuilder, check_config
from nodepool.config.objects import Config
from nodepool.config.zookeeper import ZooKeeperServer
from nodepool.exceptions import ConfigError


def ends_builds(builder: ImageBuilder) -> bool:
    return builder._end_builds.is_set()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGUSR1])
def test_builds_may_go_on(tmp_path: Path, number: int) -> None:
    """SIGINT, and its old name; a second signal ends them in order, a third one ends the process."""
    builder = ImageBuilder(str(tmp_path / "nodepool.yaml"))
    assert builder.on_stop_signal(number)
    assert not ends_builds(builder)
    assert builder.on_stop_signal(number)
    assert ends_builds(builder)
    assert not builder.on_stop_signal(number)


def test_builds_are_ended(tmp_path: Path) -> None:
    """SIGTERM"""
    builder = ImageBuilder(str(tmp_path / "nodepool.yaml"))
    assert builder.on_stop_signal(signal.SIGTERM)
    assert ends_builds(builder)


def test_time_of_a_stop(tmp_path: Path) -> None:
    """It is long enough for what --stop-timeout allows."""
    path = str(tmp_path / "nodepool.yaml")
    quick, slow = (ImageBuilder(path, None, BuilderOptions(stop_timeout=seconds)) for seconds in (0.0, 1000.0))
    assert slow.stop_seconds == quick.stop_seconds + 1000.0


def test_what_a_builder_needs() -> None:
    """B-12"""
    config = Config()
    with pytest.raises(ConfigError, match=r"images-dir \(.*\) and zookeeper-servers"):
        check_config(config)
    config.images_dir = "/images"
    config.zookeeper_servers = [ZooKeeperServer("localhost", 2281, None)]
    check_config(config)
