# SPDX-License-Identifier: Apache-2.0
"""The way into the background: what cannot work is said while somebody still sees it."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import pytest

from nodepool.cmd import daemon


def test_without_the_null_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its error comes from the first process, with the name of the file: behind it there is no terminal any more."""
    missing = tmp_path / "null"
    monkeypatch.setattr(os, "devnull", str(missing))
    monkeypatch.setattr(os, "fork", lambda: pytest.fail("it went into the background"))
    options = argparse.Namespace(debug=False, foreground=False, logconfig=None, pidfile=str(tmp_path / "nodepool.pid"))
    before = os.umask(0o077)
    try:
        with pytest.raises(FileNotFoundError, match=str(missing)):
            daemon.run(options, str(tmp_path / "nodepool.log"), lambda _options: 0, lambda _options: None)
    finally:
        os.umask(before)
