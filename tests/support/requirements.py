# SPDX-License-Identifier: Apache-2.0
"""What a machine must have. Missing parts fail a test; they never skip it."""

from __future__ import annotations


class MissingRequirement(RuntimeError):
    """Something that the tests need is not installed. The text says how to get it."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(f"The tests need {what}. On Debian: {remedy}")
