# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import base64
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from nodepool.compat.modules import get_client


class ConfigException(Exception):
    pass


class Library:
    """What is used of the library ``kubernetes``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.contexts: dict[str | None, Any] = {}
        self.pod: dict[str, str] | None = None
        self.no_files: Exception = ConfigException("no files")
        config: Any = ModuleType("kubernetes.config")
        config.ConfigException = ConfigException
        config.new_client_from_config = self._from_files
        config.load_incluster_config = self._from_pod
        client: Any = ModuleType("kubernetes.client")
        client.Configuration = lambda: SimpleNamespace(api_key={}, ssl_ca_cert=None)
        client.ApiClient = lambda configuration: SimpleNamespace(configuration=configuration)
        client.CoreV1Api = lambda api_client: ("core", api_client)
        monkeypatch.setitem(sys.modules, "kubernetes", ModuleType("kubernetes"))
        monkeypatch.setitem(sys.modules, "kubernetes.config", config)
        monkeypatch.setitem(sys.modules, "kubernetes.client", client)

    def _from_files(self, context: str | None) -> Any:
        if not self.contexts:
            raise self.no_files
        if context not in self.contexts:
            raise ConfigException(f"no context {context}")
        return SimpleNamespace(configuration=self.contexts[context])

    def _from_pod(self, client_configuration: Any) -> None:
        if self.pod is None:
            raise ConfigException("not in a pod")
        client_configuration.api_key = self.pod


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    return Library(monkeypatch)


@pytest.mark.parametrize("key", ["authorization", "BearerToken"], ids=["to 36", "from 37"])
def test_context(library: Library, log: Any, tmp_path: Path, key: str) -> None:
    """The token without its prefix, the CA in base64, and both clients."""
    ca = tmp_path / "ca.crt"
    ca.write_bytes(b"certificate")
    library.contexts["lab"] = SimpleNamespace(api_key={key: "Bearer secret"}, ssl_ca_cert=str(ca))
    token, ca_crt, core, other = get_client(log, "lab", lambda api_client: ("extra", api_client))
    assert token == "secret"
    assert base64.b64decode(ca_crt or "") == b"certificate"
    assert core[0] == "core"
    assert other == ("extra", core[1])


def test_without_token_and_ca(library: Library, log: Any) -> None:
    library.contexts[None] = SimpleNamespace(api_key={}, ssl_ca_cert=None)
    token, ca_crt, core, other = get_client(log, None)
    assert (token, ca_crt, other) == (None, None, None)
    assert core is not None


@pytest.mark.parametrize("error", [ConfigException("empty"), FileNotFoundError()], ids=["empty", "missing"])
def test_in_a_pod(library: Library, log: Any, error: Exception) -> None:
    library.no_files = error
    library.pod = {"authorization": "Bearer of-the-pod"}
    assert get_client(log, None)[0] == "of-the-pod"


@pytest.mark.parametrize("context", [None, "nope"])
def test_nowhere(library: Library, log: Any, caplog: pytest.LogCaptureFixture, context: str | None) -> None:
    """Said in the log; the driver goes on without."""
    if context is not None:
        library.contexts["lab"] = SimpleNamespace(api_key={}, ssl_ca_cert=None)
    assert get_client(log, context) == (None, None, None, None)
    assert f"context {context} cannot be used" in caplog.text


@pytest.fixture
def log() -> Any:
    import logging

    return logging.getLogger("driver")
