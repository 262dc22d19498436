# SPDX-License-Identifier: Apache-2.0
"""Calls over connections that are open already."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nodepool.driver.kubernetes.access import IDENTITY_SECONDS, ClusterAccess
from nodepool.driver.kubernetes.client import KubeClient
from nodepool.driver.kubernetes.connection import ClusterConnection
from simulators.kubernetes import KubernetesSimulator

NAMESPACES = "/api/v1/namespaces"


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[KubeClient]:
    with KubernetesSimulator() as simulator:
        monkeypatch.setenv("KUBECONFIG", str(simulator.write_kubeconfig(tmp_path / "kubeconfig")))
        made = KubeClient(ClusterConnection("cluster", "admin"))
        yield made
        made.close()


def test_first_call_opens_the_connection(client: KubeClient) -> None:
    """KU-1: urllib3 makes it, as the kubeconfig says; later calls find it."""
    access = client.connection.access()
    assert access.exchange("GET", NAMESPACES, None, 5.0) is None
    listed = client.call("GET", NAMESPACES)
    answer = access.exchange("GET", NAMESPACES, None, 5.0)
    assert answer is not None
    assert answer.status == 200
    assert len(listed["items"]) == 2


def test_same_calls_either_way(client: KubeClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """KU-2: what is made over an open connection is what is made over a new one; so are refusals."""
    client.call("GET", NAMESPACES)
    quick = client.call("POST", NAMESPACES, {"metadata": {"name": "quick", "annotations": {"a": "ä"}}})
    again = client.call
    monkeypatch.setattr(ClusterAccess, "exchange", lambda *_: None)
    slow = again("POST", NAMESPACES, {"metadata": {"name": "slow", "annotations": {"a": "ä"}}})
    for made in (quick, slow):
        for key in ("name", "uid", "creationTimestamp", "resourceVersion"):
            made["metadata"].pop(key)
    assert quick == slow


@pytest.mark.parametrize("change", [{"proxy": "http://proxy.example"}, {"api_key": {"authorization": "a\r\nHost: b"}}])
def test_what_is_unusual_takes_the_long_way(client: KubeClient, change: dict[str, Any]) -> None:
    """KU-1: a proxy; and a token that would be two lines, which urllib3 refuses."""
    client.call("GET", NAMESPACES)
    access = client.connection.access()
    for name, value in change.items():
        setattr(access.settings, name, value)
    access.settings.refresh_api_key_hook = None
    access._identity.clear()
    assert access.exchange("GET", NAMESPACES, None, 5.0) is None


def test_identity_is_not_worked_out_for_each_call(client: KubeClient) -> None:
    """KU-1: the package works out all its settings anew when it is asked for the token."""
    access = client.connection.access()
    asked, hook = [], access.settings.refresh_api_key_hook

    def count(settings: Any) -> None:
        asked.append(settings)
        hook(settings)

    access.settings.refresh_api_key_hook = count
    for _ in range(20):
        client.call("GET", NAMESPACES)
    assert 1 <= len(asked) < 20
    assert IDENTITY_SECONDS <= 5
