# SPDX-License-Identifier: Apache-2.0
"""Creates by key."""

from __future__ import annotations

import pytest

from nodepool.testing.simulator.tokens import CreateTokens, TokenMismatch


def test_the_same_key_gives_the_same_thing() -> None:
    tokens: CreateTokens[str] = CreateTokens()
    assert tokens.find("key", {"size": 1}) is None
    tokens.remember("key", {"size": 1}, "thing")
    assert tokens.find("key", {"size": 1}) == "thing"
    with pytest.raises(TokenMismatch):
        tokens.find("key", {"size": 2})
    tokens.forget("key")
    assert tokens.find("key", {"size": 2}) is None
