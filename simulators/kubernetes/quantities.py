# SPDX-License-Identifier: Apache-2.0
"""Quantities as Kubernetes writes them: ``500m``, ``2``, ``1Gi``, ``10M``."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

BINARY = ("Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
DECIMAL = {"n": -3, "u": -2, "m": -1, "": 0, "k": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}
_FORM = re.compile(r"^([+-]?(?:\d+\.?\d*|\.\d+))(?:([eE][+-]?\d+)|([KMGTPE]i|[numkMGTPE]?))$")


def parse(text: Any) -> Fraction:
    """The number.

    :raises ValueError: this is no quantity.
    """
    found = _FORM.match(str(text))
    if found is None:
        raise ValueError(f"quantities must match the regular expression {_FORM.pattern!r}: {text!r}")
    number = Fraction(found[1])
    if found[2]:
        power = int(found[2][1:])
        return number * int(10**power) if power >= 0 else number / int(10**-power)
    if found[3] in BINARY:
        return number * int(1024 ** (BINARY.index(found[3]) + 1))
    return number * Fraction(1000) ** DECIMAL[found[3]]


def write(number: Fraction, binary: bool) -> str:
    """The shortest whole way to write it.

    :param binary: for memory and storage: ``Mi`` instead of ``M``.
    """
    if number.denominator != 1:
        return f"{-(-number * 1000 // 1)}m"
    whole, unit = int(number), ""
    step = 1024 if binary else 1000
    for bigger in BINARY if binary else ("k", "M", "G", "T", "P", "E"):
        if whole == 0 or whole % step:
            break
        whole, unit = whole // step, bigger
    return f"{whole}{unit}"
