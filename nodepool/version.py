# SPDX-License-Identifier: Apache-2.0
"""The release of the installed package."""

from __future__ import annotations

import functools
import sys
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


def how_to_install(extra: str) -> str:
    """How an operator installs what an extra of the package brings: text for the end of an error.

    The command is that of the present installation: ``tools/install``, or pip with the checkout or the wheel that it
    was given. On PyPI the name of this package belongs to the released Nodepool. Reads files of the installation.
    """
    from nodepool.origin import install_command

    if command := install_command(extra):
        return f"to install it: {command}"
    return f"to install it, in the directory of Nodepool's source: {sys.prefix}/bin/pip install '.[{extra}]'"


if not TYPE_CHECKING:
    # Drivers written for 11.0.0 import these from here.
    __getattr__ = late_names(
        __name__,
        {
            "version_info": "nodepool.compat.modules",
        },
    )
