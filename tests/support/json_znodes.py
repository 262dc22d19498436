# SPDX-License-Identifier: Apache-2.0
"""`JsonZnodes`: reads the znodes of a chroot, which have JSON in them.

Plain Kazoo and no code of ours, so that a mistake of ours cannot hide itself.
"""

from __future__ import annotations

import json
from typing import Any

from kazoo.exceptions import NoNodeError

from tests.support.plain_kazoo import PlainKazoo


class JsonZnodes:
    """Reads below one chroot.

    :param hosts: connection string with the chroot, for the port without TLS.
    """

    def __init__(self, hosts: str) -> None:
        self.kazoo = PlainKazoo(hosts=hosts, timeout=20.0)

    def start(self) -> None:
        self.kazoo.start(20)

    def stop(self) -> None:
        self.kazoo.stop()
        self.kazoo.close()

    def children(self, path: str) -> list[str]:
        """Names of the children, sorted; empty when there is no such znode."""
        try:
            return sorted(self.kazoo.get_children(path))
        except NoNodeError:
            return []

    def read(self, path: str) -> dict[str, Any] | None:
        """The object in a znode; None when it is gone, empty or not an object."""
        try:
            value = json.loads(self.kazoo.get(path)[0])
        except (NoNodeError, ValueError, RecursionError):
            return None
        return value if isinstance(value, dict) else None
