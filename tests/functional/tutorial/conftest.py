# SPDX-License-Identifier: Apache-2.0
"""Fresh machines."""

from __future__ import annotations

from tests.functional.install.conftest import make_debian

__all__ = ["make_debian"]
