# SPDX-License-Identifier: Apache-2.0
"""Names of what is made for a node (AZ-5). Pure.

Azure does not give tags of a VM to its disk, so the name of the disk says whose it is.
"""

from __future__ import annotations

import re
from typing import Final

from nodepool.driver.statemachine.metadata import NODE_KEY, PROVIDER_KEY, mark_of, of_mark

_MARK_DIGITS: Final = 12
_DISK: Final = re.compile(r"np(\d+)(?:-\d+){0,2}-os-([0-9a-f]{12})")


def interface_name(vm: str) -> str:
    """Of the network interface of a VM."""
    return f"{vm}-nic"


def disk_name(vm: str, provider: str) -> str:
    """Of the OS disk of a VM."""
    return f"{vm}-os-{mark_of(provider, _MARK_DIGITS)}"


def disk_metadata(name: str, provider: str) -> dict[str, str]:
    """What the name of a disk says; empty = it is none of ours, or of another installation (D-10)."""
    found = _DISK.fullmatch(name.lower())
    whose = None if found is None else of_mark(found[2], provider)
    if found is None or whose is None:
        return {}
    return {NODE_KEY: found[1], PROVIDER_KEY: provider, **whose}
