# SPDX-License-Identifier: Apache-2.0
"""nodepool.cmd.events: what ``--subject`` finds."""

from __future__ import annotations

import pytest

from nodepool.cmd.events import is_about


@pytest.mark.parametrize("text", ["pool", "cloud-a/main", "cloud-a", "main"])
def test_found(text: str) -> None:
    assert is_about("pool cloud-a/main", text)


@pytest.mark.parametrize("text", ["cloud", "cloud-a/", "cloud-b/main", ""])
def test_not_found(text: str) -> None:
    assert not is_about("pool cloud-a/main", text)
