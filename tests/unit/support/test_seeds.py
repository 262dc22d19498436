# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import argparse

import pytest

from tests.support.seeds import seeds


@pytest.mark.parametrize(("text", "found"), [("7", [7]), ("1-3", [1, 2, 3]), ("4,5, 8-9", [4, 5, 8, 9])])
def test_seeds(text: str, found: list[int]) -> None:
    assert seeds(text) == found


@pytest.mark.parametrize("text", ["", "a", "3-1", "1,,2", "-1", "1-"])
def test_mistakes(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="must be like"):
        seeds(text)
