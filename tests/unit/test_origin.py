# SPDX-License-Identifier: Apache-2.0
"""What a message tells to type when an extra is missing: a line that works for the present installation."""

from __future__ import annotations

import json
import os
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from nodepool.version import how_to_install, install_command


class Distribution:
    """What pip has noted."""

    def __init__(self, noted: str | None) -> None:
        self._noted = noted

    def read_text(self, name: str) -> str | None:
        assert name == "direct_url.json"
        return self._noted


@pytest.fixture(autouse=True)
def prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The virtual environment of the installation."""
    path = tmp_path / "venv"
    path.mkdir()
    monkeypatch.setattr("sys.prefix", str(path))
    return path


def noted(monkeypatch: pytest.MonkeyPatch, data: Any) -> None:
    text = data if isinstance(data, str) or data is None else json.dumps(data)
    monkeypatch.setattr(metadata, "distribution", lambda name: Distribution(text))


def checkout(tmp_path: Path) -> Path:
    tool = tmp_path / "src" / "tools" / "install"
    tool.parent.mkdir(parents=True)
    tool.touch()
    return tmp_path / "src"


class TestPip:
    def test_checkout(self, tmp_path: Path, prefix: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        source = checkout(tmp_path)
        noted(monkeypatch, {"url": source.as_uri(), "dir_info": {}})
        assert how_to_install("tracing") == f"to install it: {prefix}/bin/pip install '{source}[tracing]'"
        noted(monkeypatch, {"url": source.as_uri(), "dir_info": {"editable": True}})
        assert install_command("tracing") == f"{prefix}/bin/pip install -e '{source}[tracing]'"

    def test_wheel(self, tmp_path: Path, prefix: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        wheel = tmp_path / "a b.whl"
        wheel.touch()
        noted(monkeypatch, {"url": wheel.as_uri(), "archive_info": {}})
        assert install_command("tracing") == f"{prefix}/bin/pip install '{wheel}[tracing]'"

    @pytest.mark.parametrize(
        "data",
        [
            *(None, "[]", "{", {"url": "https://example.org/nodepool.whl", "archive_info": {}}),
            {"url": "file:///nowhere/at/all", "dir_info": {}},
        ],
    )
    def test_unknown(self, prefix: Path, monkeypatch: pytest.MonkeyPatch, data: object) -> None:
        """Never a name of PyPI."""
        noted(monkeypatch, data)
        expected = f"in the directory of Nodepool's source: {prefix}/bin/pip install '.[tracing]'"
        assert how_to_install("tracing") == f"to install it, {expected}"

    def test_not_installed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def missing(name: str) -> Distribution:
            raise metadata.PackageNotFoundError(name)

        monkeypatch.setattr(metadata, "distribution", missing)
        assert install_command("tracing") is None


class TestToolsInstall:
    @pytest.fixture(autouse=True)
    def _also_by_pip(self, monkeypatch: pytest.MonkeyPatch) -> None:
        noted(monkeypatch, None)

    def test_source(self, tmp_path: Path, prefix: Path) -> None:
        source = checkout(tmp_path)
        told = {"source": str(source), "wheel": None}
        (prefix / "nodepool-install.json").write_text(json.dumps(told), encoding="ascii")
        assert install_command("tracing") == f"{source}/tools/install --extras tracing"
        told["wheel"] = "/srv/nodepool.whl"
        (prefix / "nodepool-install.json").write_text(json.dumps(told), encoding="ascii")
        assert install_command("tracing") == f"{source}/tools/install --wheel /srv/nodepool.whl --extras tracing"

    def test_source_of_root(self, tmp_path: Path, prefix: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A daemon may not look below /root, but root may type the command."""
        (prefix / "nodepool-install.json").write_text('{"source": "/root/nodepool"}', encoding="ascii")
        really = os.stat

        def refused(path: Any, **options: Any) -> os.stat_result:
            if str(path).startswith("/root/nodepool/"):
                raise PermissionError
            return really(path, **options)

        monkeypatch.setattr("os.stat", refused)
        assert install_command("tracing") == "/root/nodepool/tools/install --extras tracing"

    @pytest.mark.parametrize("text", ['{"source": "/nowhere"}', "{", "[]", "{}"])
    def test_gone(self, prefix: Path, text: str) -> None:
        (prefix / "nodepool-install.json").write_text(text, encoding="ascii")
        assert install_command("tracing") is None
