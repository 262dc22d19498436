# SPDX-License-Identifier: Apache-2.0
"""``tracing``: where spans are sent (reference/configuration 2)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from nodepool.exceptions import ConfigError
from nodepool.tracing.sending import OtlpSettings
from nodepool.version import how_to_install
from tests.unit.config.test_webapp import load


@pytest.mark.parametrize("text", ["", "tracing: {}", "tracing: {enabled: false, protocol: http/protobuf}"])
def test_off(tmp_path: Path, text: str) -> None:
    """TR-1."""
    assert load(tmp_path, text).tracing_settings() is None


def test_every_key(tmp_path: Path) -> None:
    keys = "endpoint: c:4317, service_name: s, tls_cert: a, tls_key: b, tls_ca: d, insecure: false, timeout: 5"
    settings = load(tmp_path, f"tracing: {{enabled: true, {keys}, compression: gzip}}").tracing_settings()
    assert settings == OtlpSettings("grpc", "c:4317", "s", "a", "b", "d", False, 5, "gzip")


def test_http(tmp_path: Path) -> None:
    keys = "enabled: true, protocol: http/protobuf, endpoint: 'https://c/v1/traces', certificate_file: f"
    settings = load(tmp_path, f"tracing: {{{keys}}}").tracing_settings()
    assert settings == OtlpSettings("http/protobuf", "https://c/v1/traces", tls_ca="f")


@pytest.mark.parametrize(
    ("keys", "key", "words"),
    [
        ("protocol: thrift", "protocol", "grpc, http/protobuf"),
        ("protocl: grpc", "protocl", "did you mean 'protocol'"),
        ("timeout: soon", "timeout", "whole number"),
        ("compression: zip", "compression", "gzip"),
        ("protocol: http/protobuf, insecure: true", "insecure", "only for protocol grpc"),
        ("protocol: http/protobuf, endpoint: c:4318", "endpoint", "begins with http"),
        ("certificate_file: f", "certificate_file", "use tls_ca"),
        ("protocol: http/protobuf, certificate_file: f, tls_ca: f", "certificate_file", "give one of them"),
        ("tls_cert: f", "tls_cert", "it needs tls_key"),
        ("tls_key: f", "tls_key", "it needs tls_cert"),
    ],
)
def test_refused(tmp_path: Path, keys: str, key: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        load(tmp_path, f"tracing:\n  {{enabled: true, {keys}}}")
    assert f"f.yaml:4: tracing.{key}" in str(caught.value)


def test_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """TR-1: only when it is enabled; a daemon refuses it, too."""
    monkeypatch.setattr("nodepool.config.objects.missing_module", lambda protocol: "opentelemetry.sdk.trace")
    load(tmp_path, "tracing: {protocol: grpc}")
    with pytest.raises(ConfigError, match=rf"f\.yaml:4: tracing\.enabled.*{re.escape(how_to_install('tracing'))}"):
        load(tmp_path, "tracing:\n  enabled: true", strict=False)
