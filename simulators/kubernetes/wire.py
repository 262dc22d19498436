# SPDX-License-Identifier: Apache-2.0
"""How objects are written."""

from __future__ import annotations

import json
from typing import Any


def text_of(content: dict[str, Any]) -> str:
    """An object as JSON, as short as the API server writes it."""
    return json.dumps(content, separators=(",", ":"))
