# SPDX-License-Identifier: Apache-2.0
"""The release of the installed package, and how to install more of it."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING

from nodepool.late_names import late_names

#: The name of the distribution; ``setup.py`` reads it here. Who publishes under another one changes this line.
DISTRIBUTION = "nodepool"


@functools.cache
def release_string() -> str:
    """The release, e.g. ``12.0.0``; ``0.0.0`` when the package runs from a tree that is not installed.

    Reads the package's metadata on the first call.
    """
    from importlib import metadata

    try:
        return metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return "0.0.0"


def how_to_install(extra: str) -> str:
    """How an operator installs what an extra of the package brings: text for the end of an error.

    The installed package satisfies pip: it asks for no other one, which on PyPI has the same name, and adds the extra.
    """
    return f"to install it: {sys.prefix}/bin/pip install '{DISTRIBUTION}[{extra}]'"


if not TYPE_CHECKING:
    # Drivers written for 11.0.0 import these from here.
    __getattr__ = late_names(__name__, {"version_info": "nodepool.compat.modules"})
