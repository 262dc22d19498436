# SPDX-License-Identifier: Apache-2.0
"""The configuration of a running daemon (rule G-8)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, ClassVar

import pytest

from nodepool.config.objects import Config, DiskImage, Label
from nodepool.driver.config import ImageConversion, ProviderConfig
from nodepool.driver.fake.config import FakeProviderConfig
from nodepool.driver.framework.sections import UnavailableProviderConfig
from nodepool.exceptions import ConfigError
from nodepool.metrics.catalog import RELOADS
from nodepool.runtime import reload
from nodepool.runtime.reload import MAX_CHANGES, Configuration, keep_usable
from tests.support.counted import Counted
from tests.support.manual_clock import ManualClock


class Files:
    """The configuration files; ``next`` is what they hold now."""

    def __init__(self) -> None:
        self.next: Config | Exception = Config()
        self.loads = 0
        self._loaded: object = None

    def files(self) -> list[str]:
        return []

    def changed(self) -> bool:
        return self.next is not self._loaded

    def load(self) -> Config:
        self.loads += 1
        self._loaded = self.next
        if isinstance(self.next, Exception):
            raise self.next
        return self.next


class Daemon:
    """Two parts follow its configuration: ``cables`` and ``pools``."""

    def __init__(self) -> None:
        self.files = Files()
        self.cables: list[Config] = []
        self.applied: list[Config] = []
        self.error: Exception | None = None
        self.seen: list[Config] = []
        self.clock = ManualClock()
        parts = {"cables": self.cables.append, "pools": self.apply}
        log = logging.getLogger("test.reload")
        self.configuration = Configuration(self.files, parts, self.look_again, log, self.clock)
        self.phases: list[str] = []
        self.configuration.on_reload = self.phases.append
        self.outcomes: list[tuple[bool, Sequence[str]]] = []
        self.configuration.on_outcome = lambda ok, texts: self.outcomes.append((ok, texts))
        self.first = self.configuration.load()

    def apply(self, new: Config) -> None:
        if self.error is not None:
            raise self.error
        self.applied.append(new)

    def look_again(self) -> None:
        self.seen.append(self.configuration.current)


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
    assert daemon.applied == [new]
    assert daemon.seen == [new]
    assert daemon.phases == ["reloading", "serving"]
    assert daemon.outcomes == [(True, [])]


def test_reloads_are_counted(daemon: Daemon) -> None:
    """WP-77: applied and refused ones."""
    counted = Counted(RELOADS)
    daemon.configuration.follow()
    assert counted.new() == {}
    daemon.files.next = Config()
    daemon.configuration.follow()
    daemon.files.next = ConfigError("no")
    daemon.configuration.follow()
    assert counted.new() == {("applied",): 1, ("refused",): 1}


def test_changes_that_cannot_be_told(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """G-8: classes of a driver may raise when they are compared; the new configuration takes effect all the same."""

    def fail(*_: object) -> Any:
        raise AttributeError("a pool of this driver has no labels")

    monkeypatch.setattr(reload, "config_changes", fail)
    new = daemon.files.next = Config()
    daemon.configuration.follow()
    assert daemon.applied == [new]
    assert daemon.seen == [new]
    assert daemon.phases == ["reloading", "serving"]
    assert "What the configuration changes is not known" in caplog.text
    assert daemon.outcomes == [(True, ["what it changes is not known, the log says why"])]


def test_refused_file(daemon: Daemon, caplog: pytest.LogCaptureFixture) -> None:
    """G-8: said once, and nothing is different."""
    daemon.files.next = ConfigError("line 3: no such label")
    daemon.configuration.follow()
    daemon.configuration.follow()
    assert daemon.applied == []
    assert daemon.configuration.current is daemon.first
    assert daemon.phases == ["reloading", "serving; the changed configuration file is refused"]
    assert daemon.outcomes == [(False, ["line 3: no such label"])]
    assert caplog.messages == ["The configuration is refused, the running one stays:\nline 3: no such label"]


class TestBrokenProvider:
    """A running provider whose new section cannot be used runs on with the old one."""

    def load(self, *sections: dict[str, Any], labels: tuple[str, ...] = ("small",)) -> Config:
        """A configuration with these providers; one without pools cannot be used."""
        config = Config()
        config.labels = {name: Label(name) for name in labels}
        for section in sections:
            if "pools" in section:
                provider: ProviderConfig = FakeProviderConfig(section)
                provider.load(config)
            else:
                provider = UnavailableProviderConfig(section, "f.yaml:3: no pools")
            config.providers[section["name"]] = provider
        return config

    GOOD: ClassVar[dict[str, Any]] = {"name": "a", "pools": [{"name": "p", "labels": [{"name": "small"}]}]}
    BAD: ClassVar[dict[str, Any]] = {"name": "a"}

    def test_runs_on(self, daemon: Daemon, caplog: pytest.LogCaptureFixture) -> None:
        daemon.files.next = first = self.load(self.GOOD)
        daemon.configuration.follow()
        daemon.files.next = second = self.load(self.BAD, {**self.GOOD, "name": "b"})
        daemon.configuration.follow()
        assert second.providers["a"] is first.providers["a"]
        assert [pool.provider.name for pool in second.labels["small"].pools] == ["b", "a"]
        assert daemon.phases[-1] == "serving; sections that cannot be used: a"
        assert "Provider a runs on with its old section, the new one cannot be used: f.yaml:3: no pools" in caplog.text
        assert daemon.outcomes[-1] == (False, ["provider a runs on with its old section: f.yaml:3: no pools"])

    def test_formats_of_images(self) -> None:
        """An image is still built in the format that the provider needs."""
        old, new = self.load(self.GOOD), self.load(self.BAD)
        for config in (old, new):
            config.diskimages = {name: DiskImage(name) for name in ("mine", "other")}
        provider: Any = old.providers["a"]
        provider.diskimages = {"mine": object(), "gone": object()}
        conversion = ImageConversion("raw", "vpc")
        old.diskimages["mine"].image_types.add("raw")
        old.diskimages["mine"].conversions["vhd"] = conversion
        old.diskimages["other"].image_types.add("raw")
        new.diskimages["mine"].image_types.add("qcow2")
        assert list(keep_usable(old, new)) == ["a"]
        assert new.diskimages["mine"].image_types == {"qcow2", "raw"}
        assert new.diskimages["mine"].conversions == {"vhd": conversion}
        assert new.diskimages["other"].image_types == set()

    def test_mended(self, daemon: Daemon) -> None:
        """Whether it broke since the start, or was broken at the start."""
        for before in (self.GOOD, self.BAD):
            daemon.files.next = self.load(before)
            daemon.configuration.follow()
            daemon.files.next = self.load(self.BAD)
            daemon.configuration.follow()
            daemon.files.next = mended = self.load({**self.GOOD, "priority": 3})
            daemon.configuration.follow()
            assert daemon.configuration.current.providers["a"] is mended.providers["a"]
            assert mended.providers["a"].priority == 3

    def test_never_good(self) -> None:
        bad = self.load(self.BAD)
        assert keep_usable(self.load(self.BAD), bad) == {}
        assert keep_usable(self.load(), bad) == {}
        assert isinstance(bad.providers["a"], UnavailableProviderConfig)

    def test_gone(self) -> None:
        """A provider that is taken out of the file goes."""
        new = self.load()
        assert keep_usable(self.load(self.GOOD), new) == {}
        assert new.providers == {}

    def test_label_gone(self) -> None:
        """The label is not in the new file; the provider goes on serving it."""
        new = self.load(self.BAD, labels=())
        assert keep_usable(self.load(self.GOOD), new) == {"a": "f.yaml:3: no pools"}
        assert new.labels == {}


def test_error_while_it_is_put_into_effect(daemon: Daemon, caplog: pytest.LogCaptureFixture) -> None:
    """G-8: the other parts have it; it is current when all have it. What has it is told, once."""
    counted = Counted(RELOADS)
    new = daemon.files.next = Config()
    new.max_hold_age = 60
    daemon.error = RuntimeError("no way")
    daemon.configuration.follow()
    assert (daemon.cables, daemon.applied) == ([new], [])
    assert daemon.configuration.current is daemon.first
    assert daemon.seen == [daemon.first]
    assert daemon.phases == ["reloading", "serving; the changed configuration file is not wholly in effect"]
    told = ["pools could not be changed: RuntimeError: no way", "changed: cables"]
    assert daemon.outcomes == [(False, told)]
    assert daemon.configuration.trouble == told
    assert f"The reload failed, it is tried again in 1 s: {'; '.join(told)}" in caplog.messages
    daemon.configuration.follow()
    assert len(daemon.cables) == 1
    for pause in (1.0, 2.0):
        daemon.clock.pass_seconds(pause - 0.01)
        daemon.configuration.follow()
        daemon.clock.pass_seconds(0.01)
        daemon.configuration.follow()
    assert len(daemon.cables) == 3
    assert len(daemon.outcomes) == 1
    daemon.error = None
    daemon.clock.pass_seconds(4.0)
    daemon.configuration.follow()
    assert daemon.configuration.current is new
    assert (daemon.applied, daemon.seen[-1]) == ([new], new)
    assert daemon.outcomes[1:] == [(True, ["max-hold-age: 0 -> 60"])]
    assert daemon.configuration.trouble == []
    assert counted.new() == {("failed",): 1, ("applied",): 1}
    daemon.clock.pass_seconds(3600.0)
    daemon.configuration.follow()
    assert daemon.files.loads == 2


def test_file_that_cannot_be_loaded(daemon: Daemon, caplog: pytest.LogCaptureFixture) -> None:
    """G-8: an error that nobody foresaw, e.g. of a library of a driver: it is loaded again, though it is the same."""
    daemon.files.next = OSError("no more files")
    daemon.configuration.follow()
    assert daemon.configuration.current is daemon.first
    assert daemon.outcomes == [(False, ["the configuration could not be loaded: OSError: no more files"])]
    assert "Reload: the configuration could not be loaded" in caplog.text
    daemon.configuration.follow()
    assert daemon.files.loads == 2
    daemon.clock.pass_seconds(1.0)
    daemon.configuration.follow()
    assert daemon.files.loads == 3


def test_refused_while_another_one_is_half_in_effect(daemon: Daemon) -> None:
    """G-8: the one that can be used is put into effect; that the file is refused stays the news."""
    half = daemon.files.next = Config()
    daemon.error = RuntimeError("no way")
    daemon.configuration.follow()
    daemon.files.next, daemon.error = ConfigError("line 3: no such label"), None
    daemon.configuration.follow()
    daemon.clock.pass_seconds(1.0)
    daemon.configuration.follow()
    assert daemon.configuration.current is half
    assert daemon.outcomes[-1] == (False, ["line 3: no such label"])
    assert daemon.configuration.trouble == ["line 3: no such label"]


def test_first_file_is_refused() -> None:
    files = Files()
    files.next = ConfigError("empty")
    with pytest.raises(ConfigError, match="empty"):
        Configuration(files, {}, lambda: None, logging.getLogger("test.reload")).load()


def test_what_changed_is_logged(daemon: Daemon, caplog: pytest.LogCaptureFixture) -> None:
    """J-1."""
    new = Config()
    new.labels["small"] = Label("small")
    new.max_hold_age = 60
    daemon.files.next = new
    with caplog.at_level(logging.INFO, "test.reload"):
        daemon.configuration.follow()
    assert caplog.messages == [
        "Configuration changed: label small added",
        "Configuration changed: max-hold-age: 0 -> 60",
    ]
    assert vars(caplog.records[0])["label"] == "small"


def test_a_reload_that_changes_nothing(daemon: Daemon, caplog: pytest.LogCaptureFixture) -> None:
    """J-1: e.g. only a comment is another one."""
    daemon.files.next = Config()
    with caplog.at_level(logging.INFO, "test.reload"):
        daemon.configuration.follow()
    assert caplog.messages == ["Configuration changed: no key has another value"]


def test_lines_of_a_reload_are_bounded(daemon: Daemon, caplog: pytest.LogCaptureFixture) -> None:
    """J-1."""
    new = Config()
    new.labels.update({f"l{number}": Label(f"l{number}") for number in range(MAX_CHANGES + 7)})
    daemon.files.next = new
    with caplog.at_level(logging.INFO, "test.reload"):
        daemon.configuration.follow()
    assert len(caplog.messages) == MAX_CHANGES + 1
    assert caplog.messages[-1] == "Configuration changed: 7 more changes"
