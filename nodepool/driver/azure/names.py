# SPDX-License-Identifier: Apache-2.0
"""Names of what is made for a node (AZ-5). Pure.

Azure does not give tags of a VM to its disk, so the name of the disk says whose it is.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

from nodepool.driver.statemachine.metadata import NODE_KEY, PROVIDER_KEY

_DISK: Final = re.compile(r"np(\d+)(?:-\d+){0,2}-os-([0-9a-f]{12})")


def interface_name(vm: str) -> str:
    """Of the network interface of a VM."""
    return f"{vm}-nic"


def disk_name(vm: str, provider: str) -> str:
    """Of the OS disk of a VM."""
    return f"{vm}-os-{_mark(provider)}"


def disk_metadata(name: str, provider: str) -> dict[str, str]:
    """What the name of a disk says; empty = it is none of ours."""
    found = _DISK.fullmatch(name.lower())
    if found is None or found[2] != _mark(provider):
        return {}
    return {NODE_KEY: found[1], PROVIDER_KEY: provider}


def _mark(provider: str) -> str:
    return hashlib.sha256(provider.encode()).hexdigest()[:12]
