# SPDX-License-Identifier: Apache-2.0
"""The release of the installed package."""

from __future__ import annotations

import functools

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
