# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from nodepool.compat import version_info


def test_strings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(version_info, "release_string", lambda: "12.1.0.dev3")
    info = version_info.version_info
    assert (info.release_string(), info.version_string(), str(info)) == ("12.1.0.dev3", "12.1.0", "12.1.0")
