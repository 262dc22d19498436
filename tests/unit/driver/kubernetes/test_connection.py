# SPDX-License-Identifier: Apache-2.0
"""How to reach a cluster, and files that change."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from nodepool.driver.framework.cloud_errors import LoginRefused
from nodepool.driver.kubernetes.connection import LOOK_SECONDS, ClusterConnection


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A kubeconfig, its authority and its token."""
    (tmp_path / "ca.crt").write_text("authority")
    (tmp_path / "token").write_text("first")
    config: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": "c", "cluster": {"server": "https://c.example:6443", "certificate-authority": "ca.crt"}},
            {"name": "open", "cluster": {"server": "https://o.example", "insecure-skip-tls-verify": True}},
        ],
        "users": [{"name": "u", "user": {"tokenFile": "token"}}],
        "contexts": [
            {"name": "one", "context": {"cluster": "c", "user": "u"}},
            {"name": "open", "context": {"cluster": "open", "user": "u"}},
        ],
        "current-context": "one",
    }
    (tmp_path / "config").write_text(json.dumps(config))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    return tmp_path


def test_context(directory: Path) -> None:
    """KU-1, KU-8: host, token and authority of a context; without verification there is no authority."""
    access = ClusterConnection("p", "one").access()
    assert access.host == "https://c.example:6443"
    assert access.bearer_token() == "first"
    assert access.authority() == base64.b64encode(b"authority").decode()
    assert not access.skip_tls
    assert ClusterConnection("p", "open").access().skip_tls
    assert ClusterConnection("p", None).access().host == "https://c.example:6443"


def test_token_that_changes(directory: Path) -> None:
    """KU-1: files are read afresh when they change, or when what they said was refused."""
    clock = Clock()
    connection = ClusterConnection("p", "one", clock)
    assert connection.access().bearer_token() == "first"
    (directory / "token").write_text("the second")
    first = connection.access()
    assert first.bearer_token() == "first"
    second = connection.access(refused=first)
    assert second.bearer_token() == "the second"
    # Several calls may have been refused with the same one: the files are read once for all of them.
    assert connection.access(refused=first) is second
    (directory / "token").write_text("number three")
    clock.now += LOOK_SECONDS + 1
    assert connection.access().bearer_token() == "number three"


def test_unchanged_files_are_not_read_again(directory: Path) -> None:
    """KU-1: connections are kept."""
    clock = Clock()
    connection = ClusterConnection("p", "one", clock)
    first = connection.access()
    clock.now += LOOK_SECONDS + 1
    assert connection.access() is first


def test_unknown_context(directory: Path) -> None:
    """KU-1: the error names file and context; it is asked again, so that a corrected file is taken up."""
    with pytest.raises(LoginRefused, match=r"context 'two': .*; correct context of the provider, or the kubeconfig$"):
        ClusterConnection("p", "two").access()


def test_no_kubeconfig(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """KU-1: outside of a cluster somebody must say where one is."""
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(LoginRefused, match=r"there is no kubeconfig at .*; write a kubeconfig, or set KUBECONFIG$"):
        ClusterConnection("p", None).access()
