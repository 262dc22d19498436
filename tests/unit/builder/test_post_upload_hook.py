# SPDX-License-Identifier: Apache-2.0
"""nodepool.builder.uploads: the program is run, and its exit code counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodepool.builder.uploads import OUTPUT_BYTES, PostUploadHookFailed, run_hook

ARGUMENTS = ("cloud", "i-1", "/images/fedora-1.qcow2")


def program(tmp_path: Path, text: str) -> str:
    path = tmp_path / "hook"
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def test_accepted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """reference/configuration 9: provider, id and file are its arguments."""
    caplog.set_level("INFO")
    run_hook(program(tmp_path, 'echo "$1 $2 $3 $#"'), *ARGUMENTS)
    assert "cloud i-1 /images/fedora-1.qcow2 3" in caplog.text


def test_silence_is_not_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    run_hook(program(tmp_path, "true"), *ARGUMENTS)
    assert caplog.records == []


def test_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Another exit code: what it wrote, to stderr too, is in the log."""
    with pytest.raises(PostUploadHookFailed, match="does not accept image i-1: exit code 3"):
        run_hook(program(tmp_path, "echo no; echo virus >&2; exit 3"), *ARGUMENTS)
    assert "no\nvirus" in caplog.text


def test_not_there() -> None:
    with pytest.raises(PostUploadHookFailed, match="/no/such/hook cannot be run"):
        run_hook("/no/such/hook", *ARGUMENTS)


def test_hangs(tmp_path: Path) -> None:
    """It is killed, and so is what it started."""
    with pytest.raises(PostUploadHookFailed, match=r"took longer than 0\.2 s"):
        run_hook(program(tmp_path, "sleep 1000"), *ARGUMENTS, seconds=0.2)


def test_much_output(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Only its end goes into the log."""
    with pytest.raises(PostUploadHookFailed):
        run_hook(program(tmp_path, "seq 1 20000; exit 1"), *ARGUMENTS)
    assert "20000" in caplog.text
    assert len(caplog.text) < OUTPUT_BYTES + 1000
