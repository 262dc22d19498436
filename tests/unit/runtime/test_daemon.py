# SPDX-License-Identifier: Apache-2.0
"""A daemon: how it begins and ends, its main loop, its workers, and the configuration that it follows."""

from __future__ import annotations

import errno
import logging
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest

from nodepool.clock import monotonic
from nodepool.config.loader import load_config
from nodepool.config.objects import Config, DiskImage, Label, ZooKeeperServer
from nodepool.config.zookeeper import make_client
from nodepool.driver.config import ImageConversion, ProviderConfig
from nodepool.driver.fake import FakeProviderConfig
from nodepool.driver.framework.sections import UnavailableProviderConfig
from nodepool.exceptions import ConfigError, ZKConnectionError, ZKException
from nodepool.metrics.catalog import RELOADS
from nodepool.runtime.daemon import LOOP_SECONDS, Configuration, ConnectedDaemon, keep_usable
from nodepool.runtime.daemon import follow as follow_servers
from nodepool.runtime.worker import Worker
from nodepool.version import release_string
from nodepool.zk.client import ZooKeeperClient
from tests.support.counted import Counted
from tests.support.manual_clock import ManualClock, monotonic_clock
from tests.support.wait import DEADLINE_SECONDS, wait_for

LOG = logging.getLogger("test.daemon")
HEAD = "zookeeper-servers: [{host: localhost}]\nzookeeper-tls: {cert: c, key: k, ca: a}\n"
ERRORS = [None, ZKConnectionError("away"), RuntimeError("no way"), SystemExit(3)]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "nodepool.yaml"


# -- the main loop


class Still(ConnectedDaemon):
    """Makes turns that the test gives; without one it ends after a turn."""

    log, kind, stop_seconds = LOG, "daemon", 30.0

    def build(self, client: Any) -> None:
        self.client, self.calls = client, ["build"]
        self.each_turn: Callable[[], object] = self.stopping.set

    def begin(self) -> None:
        self.calls.append("begin")

    def run_once(self) -> None:
        self.each_turn()

    def apply(self, config: Config) -> None:
        self.calls.append("apply")

    def end(self) -> None:
        self.calls.append("end")


@pytest.fixture
def still(file: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Still:
    """Is started; its connection is there."""
    caplog.set_level(logging.INFO, LOG.name)
    client = SimpleNamespace(connected=True, hosts="localhost:2281", tls_files=("c", "k", "a"))
    client.connect = client.look_after = lambda: None
    # It makes its client itself.
    monkeypatch.setattr(sys.modules[ConnectedDaemon.__module__], "make_client", lambda config: client)
    file.write_text(HEAD)
    daemon = Still(str(file))
    daemon.start()
    return daemon


@pytest.mark.parametrize("error", ERRORS[:3])
def test_main_loop(still: Still, file: Path, error: Exception | None, caplog: pytest.LogCaptureFixture) -> None:
    """G-1, G-3: whatever a turn raises, the next one comes; it is ready after a good turn with a connection."""
    turns: list[bool] = []

    def turn() -> None:
        turns.append(still.ready.is_set())
        if len(turns) == 3:
            still.stopping.set()
        if len(turns) == 2 and error is not None:
            raise error

    still.each_turn = turn
    still.run()
    assert (turns, still.stopping.is_set(), still.calls) == ([False, True, True], True, ["build", "begin", "end"])
    assert ("going on" in caplog.text) == isinstance(error, RuntimeError)
    assert ("Main loop interrupted: away" in caplog.text) == isinstance(error, ZKConnectionError)


def test_pause_ends_when_the_configuration_changes(still: Still, file: Path) -> None:
    """G-1: soon, however the file is changed; and a stop ends it, too. Without a connection it is not ready."""
    still.ready.set()
    changes: list[Callable[[], object]] = [
        lambda: file.write_text(f"{HEAD}labels: [{{name: a}}]"),
        lambda: os.utime(file, (1, 1)),
        lambda: file.with_suffix(".new").rename(file),
    ]
    for change in changes:
        still.configuration.source.load()
        file.with_suffix(".new").write_text(f"{HEAD}labels: [{{name: b}}]")
        begun = monotonic()
        change()
        assert not still.pause()
        assert monotonic() - begun < LOOP_SECONDS
    still.stopping.set()
    assert still.pause()
    cast(Any, still.client).connected = False
    still.ready.clear()
    still.turn()
    assert not still.ready.is_set()


# -- workers


class Passes(Worker):
    """Does what the script says in each pass; at its end it stops."""

    error_wait_seconds = 0.01

    def __init__(self, *script: Callable[[], float | None], connected: bool = True) -> None:
        self.link = SimpleNamespace(connected=connected, asked=0)
        self.link.wait_connected = self._answer
        super().__init__("Passes", cast(ZooKeeperClient, self.link), LOG, 1000.0)
        self.script = list(script)
        self.passes = 0
        self.last_words: Callable[[], object] = lambda: None

    def _answer(self, timeout: float) -> bool:
        self.link.asked += 1
        return bool(self.link.connected)

    def run_once(self) -> float | None:
        self.passes += 1
        if not self.script:
            self.stop()
            return None
        return self.script.pop(0)()

    def on_stop(self) -> None:
        self.last_words()

    def finish(self) -> None:
        self.start()
        self.join(DEADLINE_SECONDS)
        assert not self.is_alive()


def throw(error: BaseException | None) -> Callable[..., float | None]:
    def step(*_: object) -> float | None:
        if error is not None:
            raise error
        return 0.0

    return step


@pytest.mark.parametrize("error", ERRORS)
def test_passes_of_a_worker(error: BaseException | None, caplog: pytest.LogCaptureFixture) -> None:
    """G-2, A-19: no exception ends the thread; a wake during a pass is not lost; a pass may be due by itself."""
    worker = Passes(throw(error), lambda: worker.wake(), lambda: -5.0)
    worker.last_words = throw(error if isinstance(error, Exception) else None)
    worker.finish()
    assert worker.passes == 4
    if isinstance(error, ZKConnectionError):
        assert "Pass interrupted" in caplog.text
        assert "Unfinished work was dropped with the ZooKeeper session: away" in caplog.text
        assert "Traceback" not in caplog.text
    elif error is not None:
        assert "Error in a pass" in caplog.text
        assert ("Error while stopping" in caplog.text) is isinstance(error, Exception)


def test_nothing_is_done_without_a_connection() -> None:
    """G-3: no pass while ZooKeeper is away, and no hot loop; then it goes on by itself."""
    worker = Passes(connected=False)
    begin = monotonic()
    worker.start()
    wait_for("it looks at the connection", lambda: worker.link.asked >= 4)
    assert (worker.passes, monotonic() - begin > 0.2) == (0, True)
    worker.link.connected = True
    worker.join(DEADLINE_SECONDS)
    assert worker.passes == 1


# -- the configuration of a running daemon (G-8, J-1)


class Daemon:
    """Two parts follow its configuration, `cables` and `pools`; ``next`` is what its files hold now."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.next: Config | Exception = Config()
        self.loaded: list[object] = []
        self.cables: list[Config] = []
        self.applied: list[Config] = []
        self.seen: list[Config] = []
        self.error: Exception | None = None
        parts = {"cables": self.cables.append, "pools": self.apply}
        files: Any = SimpleNamespace(files=list, changed=lambda: self.next is not self.loaded[-1], load=self.load)
        self.configuration = Configuration(files, parts, self.look_again, LOG)
        self.phases: list[str] = []
        self.configuration.on_reload = self.phases.append
        self.outcomes: list[tuple[bool, Sequence[str]]] = []
        self.configuration.on_outcome = lambda ok, texts: self.outcomes.append((ok, texts))
        self.first = self.configuration.load()

    def load(self) -> Config:
        self.loaded.append(self.next)
        if isinstance(self.next, Exception):
            raise self.next
        return self.next

    def apply(self, new: Config) -> None:
        if self.error is not None:
            raise self.error
        self.applied.append(new)

    def look_again(self) -> None:
        self.seen.append(self.configuration.current)

    def follow(self, new: Config | Exception | None = None, seconds: float = 0.0) -> None:
        self.clock.pass_seconds(seconds)
        self.next = self.next if new is None else new
        self.configuration.follow()


@pytest.fixture
def daemon(monkeypatch: pytest.MonkeyPatch) -> Daemon:
    return Daemon(monotonic_clock(monkeypatch, sys.modules[Configuration.__module__]))


def _unreadable() -> ConfigError:
    error = ConfigError("nodepool.yaml: cannot be read: Too many open files")
    error.__cause__ = OSError(errno.EMFILE, "Too many open files")
    return error


@pytest.mark.parametrize("error", [RuntimeError("no library"), _unreadable()], ids=["library", "files"])
def test_file_that_cannot_be_loaded(daemon: Daemon, error: Exception) -> None:
    """G-8: an error that may pass, of a library or of the system: it is loaded again, though it is the same."""
    daemon.follow(error)
    assert daemon.configuration.current is daemon.first
    text = f"the configuration could not be loaded: {type(error).__name__}: {error}"
    assert daemon.outcomes == [(False, [text])]
    daemon.follow()
    assert len(daemon.loaded) == 2
    daemon.follow(seconds=1.0)
    assert len(daemon.loaded) == 3


@pytest.mark.parametrize(("number", "loads"), [(errno.EMFILE, 3), (errno.EIO, 3), (errno.EACCES, 2)])
def test_file_that_cannot_be_read(
    number: int, loads: int, daemon: Daemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G-8: what no time of the file shows the end of is tried again."""
    with monkeypatch.context() as patched:
        patched.setattr("builtins.open", Mock(side_effect=OSError(number, os.strerror(number))))
        with pytest.raises(ConfigError) as caught:
            load_config(str(tmp_path / "nodepool.yaml"))
    daemon.follow(caught.value)
    assert os.strerror(number).lower() in daemon.configuration.trouble[0].lower()
    daemon.follow(seconds=1.0)
    assert len(daemon.loaded) == loads


def test_error_while_it_is_put_into_effect(daemon: Daemon, caplog: pytest.LogCaptureFixture) -> None:
    """G-8: the other parts have it; it is current when all have it; tried again after 1, 2, 4 s; reported once."""
    counted, new = Counted(RELOADS), Config()
    new.max_hold_age = 60
    daemon.error = RuntimeError("no way")
    daemon.follow(new)
    assert (daemon.cables, daemon.applied, daemon.configuration.current) == ([new], [], daemon.first)
    assert daemon.phases == ["reloading", "serving; the changed configuration file is not wholly in effect"]
    trouble = ["pools could not be changed: RuntimeError: no way", "changed: cables"]
    assert (daemon.outcomes, daemon.configuration.trouble) == ([(False, trouble)], trouble)
    assert f"The reload failed, it is tried again in 1 s: {'; '.join(trouble)}" in caplog.messages
    for pause, turns in ((0.99, 1), (0.01, 2), (1.99, 2), (0.01, 3)):
        daemon.follow(seconds=pause)
        assert len(daemon.cables) == turns
    daemon.error = None
    daemon.follow(seconds=4.0)
    assert (daemon.applied, daemon.seen[-1], daemon.configuration.current) == ([new], new, new)
    assert (daemon.outcomes[1:], daemon.configuration.trouble) == ([(True, ["max-hold-age: 0 -> 60"])], [])
    assert counted.new() == {("failed",): 1, ("applied",): 1}
    daemon.follow(seconds=3600.0)
    assert len(daemon.loaded) == 2


def test_refused_while_another_one_is_half_in_effect(daemon: Daemon) -> None:
    """G-8: the one that can be used is put into effect; that the file is refused stays reported."""
    half = Config()
    daemon.error = RuntimeError("no way")
    daemon.follow(half)
    daemon.error = None
    daemon.follow(ConfigError("line 3"))
    daemon.follow(seconds=1.0)
    assert daemon.configuration.current is half
    assert (daemon.outcomes[-1], daemon.configuration.trouble) == ((False, ["line 3"]), ["line 3"])


GOOD: dict[str, Any] = {"name": "a", "pools": [{"name": "p", "labels": [{"name": "small"}]}]}
BAD: dict[str, Any] = {"name": "a"}


def config(*sections: dict[str, Any], labels: tuple[str, ...] = ("small",)) -> Config:
    """A configuration with these providers; one without pools cannot be used."""
    made = Config()
    made.labels = {name: Label(name) for name in labels}
    for section in sections:
        provider: ProviderConfig = UnavailableProviderConfig(section, "f.yaml:3: no pools")
        if "pools" in section:
            provider = FakeProviderConfig(section)
            provider.load(made)
        made.providers[section["name"]] = provider
    return made


def test_formats_of_images_that_are_kept() -> None:
    """G-8: an image is still built in the format that the provider needs."""
    old, new = config(GOOD), config(BAD)
    for one in (old, new):
        one.diskimages = {name: DiskImage(name) for name in ("mine", "other")}
    cast(Any, old.providers["a"]).diskimages = {"mine": object(), "removed": object()}
    conversion = ImageConversion("raw", "vpc")
    for image in old.diskimages.values():
        image.image_types.add("raw")
    old.diskimages["mine"].conversions["vhd"] = conversion
    new.diskimages["mine"].image_types.add("qcow2")
    keep_usable(old, new)
    found = {name: (image.image_types, image.conversions) for name, image in new.diskimages.items()}
    assert found == {"mine": ({"qcow2", "raw"}, {"vhd": conversion}), "other": (set(), {})}


# -- its connection and its traces


def test_servers(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    """G-13: other servers are used from now on; what needs a restart is logged; what cannot be used is an error."""

    def reset_hosts(hosts: str) -> None:
        if "bad" in hosts:
            raise ZKException("another chroot")
        client.hosts = hosts

    client: Any = SimpleNamespace(hosts="one:2181", tls_files=(None, None, None), reset_hosts=reset_hosts)
    settings = Config()
    for host, cert, used in (("one", None, "one:2181"), ("two", None, "two:2181"), ("bad", "new.pem", "two:2181")):
        settings.zookeeper_servers, settings.zookeeper_tls_cert = [ZooKeeperServer(host, 2181, None)], cert
        follow_servers(client, settings)
        assert client.hosts == used
    assert caplog.messages == [
        "zookeeper-servers: another chroot; this takes effect after a restart",
        "zookeeper-tls changed: this takes effect after a restart",
    ]
    with pytest.raises(ZKException, match="No ZooKeeper servers"):
        make_client(Config())
    settings.zookeeper_tls_cert = settings.zookeeper_tls_key = settings.zookeeper_tls_ca = str(tmp_path / "missing.pem")
    with pytest.raises(ConfigError, match=r"zookeeper-tls.key: there is no file .*missing.pem"):
        make_client(settings)


# -- its life; with ZooKeeper: the tests of launcher and builder as processes


def test_life(still: Still, file: Path, caplog: pytest.LogCaptureFixture) -> None:
    """J-9: version, file, servers and what is served, again when it changes; what it has begun is ended."""
    still.run()
    file.write_text(f"{HEAD}labels: [{{name: small}}]\n")
    still.configuration.follow()
    assert still.calls == ["build", "begin", "end", "apply"]
    logged = [record.getMessage() for record in (*caplog.get_records("setup"), *caplog.records)]
    lines = [line for line in logged if "starting" in line or line.startswith(("Configuration: ", "Serving"))]
    place = f"Configuration: {file}; ZooKeeper: localhost:2281"
    assert lines[:2] == [f"Nodepool daemon {release_string()} starting", place]
    assert lines[-1] == "Serving no provider. no label. 1 label without a pool: small"
