# SPDX-License-Identifier: Apache-2.0
"""Texts of other programs on a terminal."""

from __future__ import annotations


def printable(text: str) -> str:
    """A text in which no character can do anything but be printed: no escape sequence may reach the terminal."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else " " for char in text)


def printable_lines(text: str) -> str:
    """A text of several lines, in which no other character can do anything but be printed."""
    return "\n".join(map(printable, text.splitlines()))
