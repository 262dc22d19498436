# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from nodepool.compat import modules
from nodepool.compat.modules import MODEL_API, GlobalRegistry


@pytest.mark.parametrize(("known", "wanted"), [(None, MODEL_API), (3, 3)])
def test_model_api(monkeypatch: pytest.MonkeyPatch, known: int | None, wanted: int) -> None:
    asked: list[Any] = []

    def system_model_api(client: Any) -> int | None:
        asked.append(client)
        return known

    monkeypatch.setattr(modules, "system_model_api", system_model_api)
    registry = GlobalRegistry()
    assert registry.model_api == MODEL_API
    client = object()
    assert registry.create(SimpleNamespace(client=client)) is client
    assert registry.model_api == wanted
    assert asked == [client]
    registry.clearRegistry()
    assert registry.model_api == MODEL_API
    assert asked == [client]
