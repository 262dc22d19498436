# SPDX-License-Identifier: Apache-2.0
"""The connection that a configuration describes (rule G-13)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nodepool.config.objects import Config, ZooKeeperServer
from nodepool.exceptions import ConfigError, ZKException
from nodepool.runtime import daemon


class Client:
    """`ZooKeeperClient` as far as it takes another list of servers."""

    def __init__(self, hosts: str, cert: str | None = None) -> None:
        self.hosts = hosts
        self.tls_files = (cert, None, None)

    def reset_hosts(self, hosts: str) -> None:
        if "bad" in hosts:
            raise ZKException("another chroot")
        self.hosts = hosts


def config(host: str, cert: str | None = None) -> Config:
    made = Config()
    made.zookeeper_servers = [ZooKeeperServer(host, 2181, None)]
    made.zookeeper_tls_cert = cert
    return made


def follow(new: Config) -> str:
    client: Any = Client("one:2181")
    daemon.follow(client, new)
    hosts: str = client.hosts
    return hosts


def test_other_servers(caplog: pytest.LogCaptureFixture) -> None:
    """They are used from now on."""
    assert follow(config("one")) == "one:2181"
    assert follow(config("two")) == "two:2181"
    assert caplog.messages == []


def test_what_needs_a_restart_is_said(caplog: pytest.LogCaptureFixture) -> None:
    assert follow(config("bad", cert="new.pem")) == "one:2181"
    assert caplog.messages == [
        "zookeeper-servers: another chroot; this takes effect after a restart",
        "zookeeper-tls changed: this takes effect after a restart",
    ]


def test_no_servers() -> None:
    with pytest.raises(ZKException, match="no zookeeper-servers"):
        daemon.make_client(Config())


def test_file_that_cannot_be_read(tmp_path: Path) -> None:
    """Told at once, with its key, and not as a connection that never comes."""
    settings = config("one", cert=str(tmp_path / "missing.pem"))
    settings.zookeeper_tls_key = settings.zookeeper_tls_ca = settings.zookeeper_tls_cert
    with pytest.raises(ConfigError, match=r"zookeeper-tls.key: there is no file .*missing.pem"):
        daemon.make_client(settings)
