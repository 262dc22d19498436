# SPDX-License-Identifier: Apache-2.0
"""The configuration of a running daemon (rule G-8)."""

from __future__ import annotations

import logging

import pytest

from nodepool.config.objects import Config
from nodepool.exceptions import ConfigError
from nodepool.runtime.reload import Configuration


class Files:
    """The configuration files; ``next`` is what they hold now."""

    def __init__(self) -> None:
        self.next: Config | ConfigError = Config()
        self._loaded: object = None

    def changed(self) -> bool:
        return self.next is not self._loaded

    def load(self) -> Config:
        self._loaded = self.next
        if isinstance(self.next, ConfigError):
            raise self.next
        return self.next


class Daemon:
    def __init__(self) -> None:
        self.files = Files()
        self.applied: list[tuple[Config, Config]] = []
        self.error: Exception | None = None
        self.configuration = Configuration(self.files, self.apply, logging.getLogger("test.reload"))
        self.phases: list[str] = []
        self.configuration.on_reload = self.phases.append
        self.first = self.configuration.load()

    def apply(self, old: Config, new: Config) -> None:
        assert self.configuration.current is new
        self.applied.append((old, new))
        if self.error is not None:
            raise self.error


@pytest.fixture
def daemon() -> Daemon:
    return Daemon()


def test_nothing_changed(daemon: Daemon) -> None:
    daemon.configuration.follow()
    assert (daemon.applied, daemon.phases) == ([], [])
    assert daemon.configuration.current is daemon.first


def test_changed_file(daemon: Daemon) -> None:
    new = daemon.files.next = Config()
    daemon.configuration.follow()
    daemon.configuration.follow()
    assert daemon.applied == [(daemon.first, new)]
    assert daemon.phases == ["reloading", "serving"]


def test_refused_file(daemon: Daemon, caplog: pytest.LogCaptureFixture) -> None:
    """G-8: said once, and nothing is different."""
    daemon.files.next = ConfigError("line 3: no such label")
    daemon.configuration.follow()
    daemon.configuration.follow()
    assert daemon.applied == []
    assert daemon.configuration.current is daemon.first
    assert daemon.phases == ["reloading", "serving; the changed configuration file is refused"]
    assert caplog.messages == ["The configuration is refused, the running one stays:\nline 3: no such label"]


def test_error_while_it_is_put_into_effect(daemon: Daemon) -> None:
    daemon.files.next, daemon.error = Config(), RuntimeError("no way")
    with pytest.raises(RuntimeError, match="no way"):
        daemon.configuration.follow()
    assert daemon.phases == ["reloading", "failed"]


def test_first_file_is_refused() -> None:
    files = Files()
    files.next = ConfigError("empty")
    with pytest.raises(ConfigError, match="empty"):
        Configuration(files, lambda old, new: None, logging.getLogger("test.reload")).load()
