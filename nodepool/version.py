# SPDX-License-Identifier: Apache-2.0
"""The release of the installed package."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from nodepool.late_names import late_names

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


if not TYPE_CHECKING:
    # Drivers written for 11.0.0 import these from here.
    __getattr__ = late_names(
        __name__,
        {
            "version_info": "nodepool.compat.version_info",
        },
    )
