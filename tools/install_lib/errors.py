# SPDX-License-Identifier: Apache-2.0
"""The one error of the installation."""

from __future__ import annotations


class InstallError(Exception):
    """It cannot go on. The text is for the person at the terminal: what is wrong, and what to do."""
