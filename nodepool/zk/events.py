# SPDX-License-Identifier: Apache-2.0
"""What a recursive watch reports of a znode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

#: Kinds of events, as ZooKeeper numbers them.
CREATED: Final = 1
DELETED: Final = 2
CHANGED: Final = 3

#: ``on_event(kind, path without chroot)``, called in the connection thread: must be quick and must not block.
WatchFunction = Callable[[int, str], None]
