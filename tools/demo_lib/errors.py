# SPDX-License-Identifier: Apache-2.0
"""The one error of the demonstration."""

from __future__ import annotations


class DemoError(Exception):
    """Something is not as it should be. The text is for the person at the terminal: what, and where to look."""
