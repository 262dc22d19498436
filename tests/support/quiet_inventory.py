# SPDX-License-Identifier: Apache-2.0
"""An inventory without a thread."""

from __future__ import annotations

import threading
from typing import TypeVar

from nodepool.driver.statemachine.inventory import Inventory, Record

R = TypeVar("R", bound=Record)


class QuietInventory(Inventory[R]):
    """Lists when the test calls `poll` or `refresh`."""

    def _start(self) -> threading.Thread | None:
        return None
