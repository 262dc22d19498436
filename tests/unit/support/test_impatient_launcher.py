# SPDX-License-Identifier: Apache-2.0
"""A launcher with other constants."""

from __future__ import annotations

import sys

import pytest

from tests.support import wait
from tests.support.impatient_launcher import change_constant
from tests.support.launcher import COMMAND_VARIABLE, impatient_command


def test_constant_is_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    # Put back in the end.
    monkeypatch.setattr(wait, "LOOK_SECONDS", wait.LOOK_SECONDS)
    change_constant("tests.support.wait.LOOK_SECONDS=0.25")
    assert wait.LOOK_SECONDS == 0.25


def test_a_constant_that_is_not_there() -> None:
    """It has another name or place now: the test that changes it must be told."""
    with pytest.raises(AttributeError):
        change_constant("tests.support.wait.OTHER_SECONDS=1")


def test_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(COMMAND_VARIABLE, raising=False)
    command = impatient_command({"a.B": 2.5, "a.C": 3})
    assert command == [sys.executable, "-m", "tests.support.impatient_launcher", "a.B=2.5", "a.C=3", "--"]


def test_another_launcher_keeps_its_constants(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(COMMAND_VARIABLE, "/other/nodepool-launcher")
    assert impatient_command({"a.B": 2.5}) == ["/other/nodepool-launcher"]
