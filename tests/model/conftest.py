# SPDX-License-Identifier: Apache-2.0
"""``--hypothesis-profile=thorough``: fifty times as many examples, other ones each time."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("thorough", max_examples=5000)
