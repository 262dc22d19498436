# SPDX-License-Identifier: Apache-2.0
"""The release of the installed package, and what this installation was made from."""

from __future__ import annotations

import functools
import json
import shlex
import sys
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

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


# What this installation was made from: a checkout or a wheel, by ``tools/install`` or by pip.

#: What ``tools/install`` leaves in a virtual environment (tools/install_lib/release.py).
INSTALL_FILE: Final = "nodepool-install.json"


def install_command(extra: str) -> str | None:
    """The command that adds an extra to this installation, as it is typed, in any directory. Reads small files.

    Returns None if the checkout or the wheel is unknown, or not there any more.
    """
    words = _of_install(extra) or _of_pip(extra)
    return shlex.join(words) if words else None


def _of_install(extra: str) -> list[str]:
    try:
        told = _decoded((Path(sys.prefix) / INSTALL_FILE).read_text(encoding="utf-8"))
    except OSError:
        return []
    tool = Path(str(told.get("source"))) / "tools" / "install"
    wheel = ["--wheel", str(told["wheel"])] if told.get("wheel") else []
    return [str(tool), *wheel, "--extras", extra] if _is_there(tool) else []


def _of_pip(extra: str) -> list[str]:
    """By what pip notes of an installation that was not from an index (PEP 610)."""
    try:
        told = _decoded(metadata.distribution("nodepool").read_text("direct_url.json") or "{}")
    except metadata.PackageNotFoundError:
        return []
    address = urlsplit(str(told.get("url", "")))
    place = Path(unquote(address.path))
    if address.scheme != "file" or not _is_there(place):
        return []
    editable = ["-e"] if told.get("dir_info", {}).get("editable") else []
    return [f"{sys.prefix}/bin/pip", "install", *editable, f"{place}[{extra}]"]


def _is_there(path: Path) -> bool:
    """Also when this user may not look: whoever installs is another one."""
    try:
        path.stat()
    except PermissionError:
        return True
    except OSError:
        return False
    return True


def _decoded(text: str) -> dict[str, Any]:
    try:
        told = json.loads(text)
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}
