# SPDX-License-Identifier: Apache-2.0
"""How a daemon begins and ends, without ZooKeeper; with it: the tests of launcher and builder."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Any

import pytest

from nodepool.config.objects import Config
from nodepool.exceptions import ConfigError, ZKConnectionError
from nodepool.runtime import daemon as runtime_daemon
from nodepool.runtime.daemon import ConnectedDaemon
from nodepool.version import release_string

#: What a configuration must have.
BASE = "zookeeper-servers: [{host: localhost}]\nzookeeper-tls: {cert: c, key: k, ca: a}\n"


class Client:
    """Stands for the connection."""

    def __init__(self, error: Exception | None = None) -> None:
        self.connected = error is None
        self.hosts, self.tls_files = "localhost:2281", ("c", "k", "a")
        self.error = error
        self.disconnected = threading.Event()
        self.told = 0

    def connect(self) -> None:
        if self.error is not None:
            raise self.error

    def look_after(self) -> None:
        self.told += 1

    def disconnect(self) -> None:
        self.disconnected.set()


class Daemon(ConnectedDaemon):
    """Notes what it is asked for."""

    log = logging.getLogger("nodepool.test")
    kind = "daemon"
    stop_seconds = 30.0

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.calls: list[str] = []

    def check(self, config: Config) -> None:
        self.calls.append("check")
        if config.max_hold_age == 13:
            raise ConfigError("not thirteen")

    def build(self, client: Any) -> None:
        self.calls.append("build")
        self.client = client

    def begin(self) -> None:
        self.calls.append("begin")

    def run_once(self) -> None:
        self.calls.append("turn")
        self.loop.stop()

    def apply(self, config: Config) -> None:
        self.calls.append("apply")

    def end(self) -> None:
        self.calls.append("end")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "nodepool.yaml"
    file.write_text(f"{BASE}max-hold-age: 12\n")
    return file


def started(path: Path, monkeypatch: pytest.MonkeyPatch, client: Client) -> Daemon:
    monkeypatch.setattr(runtime_daemon, "make_client", lambda config: client)
    daemon = Daemon(str(path))
    daemon.start()
    return daemon


def test_order_of_its_life(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client()
    daemon = started(path, monkeypatch, client)
    daemon.run()
    daemon.join()
    daemon.stop()
    assert daemon.calls == ["check", "build", "begin", "turn", "end"]
    assert client.told == 1, "each turn looks after the connection"


def test_configuration_that_it_refuses(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_text(f"{BASE}max-hold-age: 13\n")
    with pytest.raises(ConfigError, match="thirteen"):
        started(path, monkeypatch, Client())


def test_what_it_says_of_itself(path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """J-9: version, file, servers and what is served; the latter again when it changes, and only then."""
    caplog.set_level(logging.INFO, "nodepool.test")
    daemon = started(path, monkeypatch, Client())
    daemon.run()
    path.write_text(f"{BASE}labels: [{{name: small}}]\n")
    daemon.configuration.follow()
    path.write_text(f"{BASE}labels: [{{name: small, min-ready: 1}}]\n")
    daemon.configuration.follow()
    assert [line for line in caplog.messages if not line.startswith("Configuration changed")] == [
        f"Nodepool daemon {release_string()} starting",
        f"Configuration: {path}; ZooKeeper: localhost:2281",
        "Serving no provider. no label",
        "Serving no provider. no label. 1 label without a pool: small",
    ]


def test_what_is_served_cannot_be_told(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """J-9: a driver's configuration may raise when it is described; the daemon serves all the same."""

    def fail(*_: object) -> str:
        raise AttributeError("a pool of this driver has no labels")

    monkeypatch.setattr(runtime_daemon, "make_client", lambda config: Client())
    monkeypatch.setattr(Daemon, "describe", fail)
    daemon = Daemon(str(path))
    daemon.start()
    daemon.run()
    assert "turn" in daemon.calls
    assert "What is served cannot be told" in caplog.text


def test_stop_before_it_runs(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    daemon = started(path, monkeypatch, Client())
    daemon.stop()
    daemon.run()
    assert daemon.calls == ["check", "build", "end"]


def test_stop_while_it_connects(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The wait for ZooKeeper is given up."""
    client = Client(ZKConnectionError("closing"))
    daemon = started(path, monkeypatch, client)
    daemon.stop()
    assert client.disconnected.is_set()
    daemon.run()
    assert daemon.calls == ["check", "build", "end"]


def test_connection_that_fails(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it has begun is ended all the same."""
    daemon = started(path, monkeypatch, Client(ZKConnectionError("no")))
    with pytest.raises(ZKConnectionError):
        daemon.run()
    assert daemon.calls == ["check", "build", "end"]


def test_changed_configuration(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    daemon = started(path, monkeypatch, Client())
    path.write_text(f"{BASE}max-hold-age: 14\n")
    daemon.configuration.follow()
    assert daemon.calls == ["check", "build", "apply"]


def test_zookeeper_is_waited_for(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Directories are made as soon as it answers."""
    made: list[str] = []
    errors = [ZKConnectionError("not yet")]

    def check(client: object) -> None:
        if errors:
            raise errors.pop()

    monkeypatch.setattr(runtime_daemon, "check_model_api", check)
    monkeypatch.setattr(runtime_daemon, "ensure_path", lambda client, root: made.append(root))
    monkeypatch.setattr(runtime_daemon, "LOOP_SECONDS", 0.0)
    daemon = started(path, monkeypatch, Client())
    daemon._prepare_zookeeper("/a", "/b")
    assert made == ["/a", "/b"]
