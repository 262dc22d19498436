# SPDX-License-Identifier: Apache-2.0
"""The release of the installed package, and how to install more of it."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING

from nodepool.late_names import late_names

DISTRIBUTION = "nodepool"
#: What ``tools/install`` leaves in a virtual environment (tools/install_lib/release.py).
INSTALL_FILE = "nodepool-install.json"


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
    The next run of ``tools/install`` would lose it, so that tool adds it to what it has made. Reads a file.
    """
    import json
    import shlex
    from pathlib import Path

    try:
        made = json.loads((Path(sys.prefix) / INSTALL_FILE).read_text(encoding="utf-8"))
        wheel = ["--wheel", made["wheel"]] if made["wheel"] else []
        command = [f"{made['source']}/tools/install", *wheel, "--extras", extra]
        return f"to install it: {shlex.join(command)}"
    except (OSError, ValueError, LookupError, TypeError):
        # Of another kind.
        pass
    return f"to install it: {sys.prefix}/bin/pip install '{DISTRIBUTION}[{extra}]'"


if not TYPE_CHECKING:
    # Drivers written for 11.0.0 import these from here.
    __getattr__ = late_names(__name__, {"version_info": "nodepool.compat.modules"})
