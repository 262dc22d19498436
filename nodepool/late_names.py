# SPDX-License-Identifier: Apache-2.0
"""Names that a module has only for who asks: they are imported from elsewhere then, not with the module."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def late_names(module_name: str, origins: Mapping[str, str]) -> Callable[[str], Any]:
    """Make the ``__getattr__`` of a module.

    :param origins: name -> module that has it under the same name.
    """

    def look_up(name: str) -> Any:
        origin = origins.get(name)
        if origin is None:
            raise AttributeError(f"module {module_name!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(origin), name)
        # Asked for once.
        setattr(sys.modules[module_name], name, value)
        return value

    return look_up
