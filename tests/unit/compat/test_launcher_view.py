# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any, cast

import pytest

from nodepool.compat.modules import LauncherView


def test_view() -> None:
    zk, provider = object(), object()
    view = LauncherView(cast(Any, zk), cast(Any, {"cloud": provider}.get))
    assert view.getZK() is zk
    assert view.zk is zk
    assert view.getProviderManager("cloud") is provider
    with pytest.raises(KeyError, match="other"):
        view.getProviderManager("other")
