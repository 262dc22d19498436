# SPDX-License-Identifier: Apache-2.0
"""Commands configure logging for their process; later tests of the same process read log lines."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _clean_logging(clean_logging: None) -> None:
    """What a command has changed of logging is put back."""
