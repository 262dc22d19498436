# SPDX-License-Identifier: Apache-2.0
"""``--seeds`` of programs that run with numbered chances."""

from __future__ import annotations

import argparse
import re


def seeds(text: str) -> list[int]:
    """The type of an option: ``7``, ``1-20`` or ``4,5,8-10``."""
    found: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part.strip())
        if match is None or int(match[2] or match[1]) < int(match[1]):
            raise argparse.ArgumentTypeError(f"{text!r} must be like 7, 1-20 or 4,5,8-10")
        found.extend(range(int(match[1]), int(match[2] or match[1]) + 1))
    return found
