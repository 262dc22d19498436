# SPDX-License-Identifier: Apache-2.0
"""What a message says to type when an extra is missing: a line that works for the present installation."""

from __future__ import annotations

import os
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nodepool.version import how_to_install, install_command
from tests.support.tables import rows


@pytest.fixture
def prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The virtual environment of the installation, beside a checkout and a wheel."""
    (tmp_path / "venv").mkdir()
    (tmp_path / "src" / "tools").mkdir(parents=True)
    (tmp_path / "src" / "tools" / "install").touch()
    (tmp_path / "a b.whl").touch()
    monkeypatch.setattr("sys.prefix", str(tmp_path / "venv"))
    return tmp_path / "venv"


@rows(__file__, "test_by_pip")
def test_by_pip(prefix: Path, monkeypatch: pytest.MonkeyPatch, noted: str | None, command: str | None) -> None:
    def distribution(name: str) -> Any:
        if noted == "missing":
            raise metadata.PackageNotFoundError(name)
        text = noted and noted.replace("TMP", str(prefix.parent))
        return SimpleNamespace(read_text={"direct_url.json": text}.__getitem__)

    monkeypatch.setattr(metadata, "distribution", distribution)
    expected = command and command.replace("TMP", str(prefix.parent))
    assert install_command("tracing") == expected
    anywhere = f"to install it, in the directory of Nodepool's source: {prefix}/bin/pip install '.[tracing]'"
    assert how_to_install("tracing") == (f"to install it: {expected}" if expected else anywhere)


@rows(__file__, "test_by_tools_install")
def test_by_tools_install(prefix: Path, monkeypatch: pytest.MonkeyPatch, noted: str, command: str | None) -> None:
    really = os.stat

    def refused(path: Any, **options: Any) -> os.stat_result:
        if str(path).startswith("/root/nodepool/"):
            raise PermissionError
        return really(path, **options)

    monkeypatch.setattr("os.stat", refused)
    monkeypatch.setattr(metadata, "distribution", lambda name: SimpleNamespace(read_text=lambda name: None))
    (prefix / "nodepool-install.json").write_text(noted.replace("TMP", str(prefix.parent)), encoding="ascii")
    assert install_command("tracing") == (command and command.replace("TMP", str(prefix.parent)))
