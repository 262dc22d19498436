# SPDX-License-Identifier: Apache-2.0
"""A Kazoo that lacks what is used of its inside is named before anything is tried with it."""

from __future__ import annotations

from collections.abc import Iterator

import kazoo.client
import kazoo.protocol.connection
import kazoo.protocol.serialization
import pytest

from nodepool.exceptions import ZKException
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.wire import compatibility


@pytest.fixture(autouse=True)
def unchecked() -> Iterator[None]:
    """The check is made once in a process."""
    compatibility.check.cache_clear()
    yield
    compatibility.check.cache_clear()


def test_the_installed_one() -> None:
    assert compatibility.missing() == []
    compatibility.check()


def test_operation_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(kazoo.protocol.serialization, "CheckVersion")
    assert compatibility.missing() == ["kazoo.protocol.serialization.CheckVersion"]


def test_module_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(compatibility.NAMES, "kazoo.nowhere", ("Nothing",))
    assert compatibility.missing() == ["kazoo.nowhere.Nothing"]


def test_method_with_other_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    def send_ping(self: object) -> None: ...

    monkeypatch.setattr(kazoo.protocol.connection.ConnectionHandler, "_send_ping", send_ping)
    monkeypatch.delattr(kazoo.protocol.connection.ConnectionHandler, "_read_header")
    assert compatibility.missing() == ["ConnectionHandler._send_ping", "ConnectionHandler._read_header"]


def test_field_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compatibility, "CLIENT_FIELDS", ("_queue", "_line"))
    assert compatibility.missing() == ["KazooClient._line"]


def test_what_an_operator_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compatibility, "installed", lambda: "3.0.0")
    monkeypatch.delattr(kazoo.client.KazooClient, "_call")
    client = ZooKeeperClient("127.0.0.1:1")
    with pytest.raises(ZKException) as raised:
        client.connect(1)
    tested = ", ".join(sorted(compatibility.TESTED_RELEASES))
    assert str(raised.value) == (
        "Kazoo 3.0.0 cannot be used, it lacks KazooClient._call: install the release of Kazoo that Nodepool was tested "
        f"with ({tested})"
    )
