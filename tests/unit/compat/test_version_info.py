# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from nodepool.compat import modules


def test_strings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modules, "release_string", lambda: "12.1.0.dev3")
    info = modules.version_info
    assert (info.release_string(), info.version_string(), str(info)) == ("12.1.0.dev3", "12.1.0", "12.1.0")
