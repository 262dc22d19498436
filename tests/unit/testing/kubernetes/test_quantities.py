# SPDX-License-Identifier: Apache-2.0
"""Quantities as Kubernetes writes them."""

from __future__ import annotations

from fractions import Fraction

import pytest

from nodepool.testing.kubernetes.quantities import parse, write


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("2", 2),
        (2, 2),
        ("500m", Fraction(1, 2)),
        ("1Gi", 2**30),
        ("1.5Gi", 3 * 2**29),
        ("10M", 10**7),
        ("1k", 1000),
        ("1e3", 1000),
        ("2.00", 2),
        ("1E-2", Fraction(1, 100)),
    ],
)
def test_parse(text: object, number: Fraction) -> None:
    assert parse(text) == number


@pytest.mark.parametrize("text", ["", "one", "1 Gi", "1GB", "--1", None])
def test_what_is_none(text: object) -> None:
    with pytest.raises(ValueError, match="quantities must match"):
        parse(text)


@pytest.mark.parametrize(
    ("number", "binary", "text"),
    [
        (2**30, True, "1Gi"),
        (512 * 2**20, True, "512Mi"),
        (1000, True, "1000"),
        (1000, False, "1k"),
        (0, True, "0"),
        (Fraction(1, 2), False, "500m"),
    ],
)
def test_write(number: Fraction, binary: bool, text: str) -> None:
    assert write(Fraction(number), binary) == text
