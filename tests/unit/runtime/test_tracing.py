# SPDX-License-Identifier: Apache-2.0
"""A daemon follows the section ``tracing`` of its configuration."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodepool.runtime.daemon import Tracing
from nodepool.tracing import spans
from nodepool.tracing.sending import HTTP, OtlpSettings
from nodepool.tracing.spans import Trace
from tests.support.otlp_receiver import http_receiver


class Configured:
    """A configuration."""

    def __init__(self, settings: OtlpSettings | None) -> None:
        self.settings = settings

    def tracing_settings(self) -> OtlpSettings | None:
        return self.settings


@pytest.fixture
def tracing() -> Iterator[Tracing]:
    made = Tracing(logging.getLogger("nodepool.NodePool"))
    yield made
    made.stop()


def test_off(tracing: Tracing) -> None:
    """TR-1."""
    tracing.follow(Configured(None))
    assert not spans.enabled()


def test_follows(tracing: Tracing) -> None:
    """TR-7: what waits is sent before spans go elsewhere, and at the end."""
    with http_receiver() as first, http_receiver() as second:
        tracing.follow(Configured(OtlpSettings(HTTP, first.endpoint)))
        assert spans.enabled()
        spans.record(Trace(1), "a", (), 1.0, 2.0)
        tracing.follow(Configured(OtlpSettings(HTTP, first.endpoint)))
        tracing.follow(Configured(OtlpSettings(HTTP, second.endpoint)))
        assert [span.name for span in first.spans] == ["a"]
        spans.record(Trace(1), "b", (), 1.0, 2.0)
        tracing.follow(Configured(None))
        assert not spans.enabled()
        assert [span.name for span in second.spans] == ["b"]


def test_a_file_that_is_missing(tracing: Tracing, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The daemon serves all the same."""
    tracing.follow(Configured(OtlpSettings(HTTP, tls_ca=str(tmp_path / "none.pem"))))
    assert not spans.enabled()
    assert "No traces are recorded" in caplog.text
