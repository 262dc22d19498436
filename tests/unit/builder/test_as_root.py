# SPDX-License-Identifier: Apache-2.0
"""Commands that only root may run."""

from __future__ import annotations

import os

import pytest

from nodepool.builder.image_files import root_command, run_as_root


def test_sudo_for_others() -> None:
    """It never asks for a password."""
    assert root_command(["kill", "1"], user_id=0) == ["kill", "1"]
    assert root_command(["kill", "1"], user_id=1000) == ["sudo", "-n", "kill", "1"]


@pytest.fixture
def _root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)


@pytest.mark.usefixtures("_root")
@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("true", ""),
        ("exit 3", "exit code 3"),
        ("echo wrong >&2; exit 1", "wrong"),
        ("echo only a warning >&2", ""),
    ],
)
def test_what_was_wrong(script: str, expected: str) -> None:
    assert run_as_root("sh", "-c", script) == expected


@pytest.mark.usefixtures("_root")
def test_it_takes_too_long() -> None:
    assert "timed out" in run_as_root("sleep", "60", timeout=0.05)


@pytest.mark.usefixtures("_root")
def test_no_such_command() -> None:
    assert "No such file" in run_as_root("/nonexistent/umount")
