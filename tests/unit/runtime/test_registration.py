# SPDX-License-Identifier: Apache-2.0
"""The entry of a daemon in the component registry."""

from __future__ import annotations

import logging
import socket
from typing import Any
from unittest.mock import create_autospec

import pytest

from nodepool.exceptions import ZKException
from nodepool.model.component import RUNNING, LauncherComponent
from nodepool.runtime import daemon
from nodepool.runtime.daemon import DaemonRegistration
from nodepool.zk.components import Registration


class Client:
    connected = True


@pytest.fixture
def entry(monkeypatch: pytest.MonkeyPatch) -> Any:
    made = create_autospec(Registration)
    monkeypatch.setattr(daemon, "Registration", made)
    return made


def register() -> tuple[Any, DaemonRegistration]:
    client: Any = Client()
    return client, DaemonRegistration(client, LauncherComponent, "1.2.3")


def test_keep(entry: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says which daemon runs where: the host name as it is, with its dots."""
    monkeypatch.setattr(socket, "gethostname", lambda: "nl01.example.com")
    _, mine = register()
    component = entry.call_args.args[1]
    assert isinstance(component, LauncherComponent)
    assert (component.version, component.hostname) == ("1.2.3", "nl01.example.com")
    mine.keep()
    entry.return_value.update.assert_called_once_with(state=RUNNING)


def test_remove(entry: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Without a connection it ends with the session; an error is no reason not to end."""
    client, mine = register()
    client.connected = False
    mine.remove()
    entry.return_value.unregister.assert_not_called()
    client.connected = True
    entry.return_value.unregister.side_effect = ZKException("away")
    with caplog.at_level(logging.WARNING):
        mine.remove()
    assert caplog.messages == ["Unregistering: away"]
