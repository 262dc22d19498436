# SPDX-License-Identifier: Apache-2.0
"""Whose launchers there are."""

from __future__ import annotations

from enum import StrEnum


class Kind(StrEnum):
    """Whose launcher it is."""

    RELEASED = "released"
    OURS = "ours"
